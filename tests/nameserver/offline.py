"""A name server without a socket, and registrations to send to it."""

import asyncio
import inspect
import json
from types import SimpleNamespace

from twinlog.nameserver.context import NameServerContext
from twinlog.nameserver.handlers import handlers
from twinlog.nameserver.kv_config import KvConfig
from twinlog.net.connection import Request
from twinlog.net.error_answers import answer_for_error
from twinlog.settings.nameserver_conf import load_nameserver_conf
from twinlog.wire.codes import RequestCode

from . import vectors


class OfflineServer:
    """Handlers with a clock that the test turns, asked without a socket."""

    def __init__(self, tmp_path, text="", run_beside=None):
        self.now_ms = 1_000_000
        self.notices = []
        self.path = tmp_path / "namesrv.conf"
        self.path.write_text(text)
        conf = load_nameserver_conf(self.path, overrides={"kvConfigPath": str(tmp_path / "kv.json")})
        kv = KvConfig(conf.nameserver.kv_path)
        self.ctx = NameServerContext(conf, kv, lambda: self.now_ms, self.notices.append)
        self.by_code = handlers(self.ctx, run_beside)
        self.connection = SimpleNamespace(peer_text="192.0.2.1:5", peer=("192.0.2.1", 5), local_host="192.0.2.1")

    def ask(self, code, fields=None, body=None, version=479, opaque=1):
        request = Request(code, opaque, version=version, fields=fields, body=body, connection=self.connection)
        try:
            answer = self.by_code[code](request)
            return asyncio.run(awaited(answer)) if inspect.isawaitable(answer) else answer
        except Exception as error:
            return answer_for_error(request, error)

    def replay(self, name):
        """Ask what a real peer asked."""
        command = vectors.command(name)
        return self.ask(command.code, command.fields, command.body, command.version, command.opaque)

    def json(self, code, fields=None, **more):
        answer = self.ask(code, fields, **more)
        assert answer.code == 0, answer
        return json.loads(answer.body)


async def awaited(answer):
    return await answer


ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
REGISTER = RequestCode.REGISTER_BROKER
MASTER = {
    "brokerName": "broker-a",
    "brokerAddr": "127.0.0.1:19911",
    "clusterName": "DefaultCluster",
    "haServerAddr": "127.0.0.1:19912",
    "brokerId": "0",
}


def registration(topics):
    wrapper = {"topicConfigTable": topics, "dataVersion": {"counter": 1, "timestamp": 1, "stateVersion": 0}}
    return json.dumps({"topicConfigSerializeWrapper": wrapper, "filterServerList": []}).encode()
