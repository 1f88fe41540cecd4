"""What the name servers are told, and when."""

from __future__ import annotations

import asyncio
import json
import tempfile
import zlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.broker.running import broker_conf, connected, running_broker, send

from twinlog.broker.naming.register_service import RegisterService
from twinlog.broker.naming.registration import encode_plain, plan_registration
from twinlog.nameserver.registration_body import decode_registration
from twinlog.net.server import Server
from twinlog.telemetry import fence
from twinlog.wire.bodies import DataVersion, RegisterBrokerBody, TopicConfig, decode_body

VERSION = DataVersion(0, 1000, 7)


def topics(count: int, **values) -> dict[str, TopicConfig]:
    return {f"topic-{n:06d}": TopicConfig(topic_name=f"topic-{n:06d}", **values) for n in range(count)}


def decoded(part):
    compressed = part.fields["compressed"] == "true"
    return decode_registration(part.body, version=479, compressed=compressed).topic_config_serialize_wrapper


def test_a_registration_is_one_request_with_the_whole_table(tmp_path):
    conf = broker_conf(tmp_path, listenPort=20911, brokerIP2="10.0.0.9")
    (part,) = plan_registration(conf, topics(3), VERSION)
    assert part.fields == {
        "brokerName": "broker-a",
        "brokerAddr": "127.0.0.1:20911",
        "clusterName": "DefaultCluster",
        "haServerAddr": "10.0.0.9:20912",
        "brokerId": "0",
        "enableActingMaster": "false",
        "compressed": "false",
        "bodyCrc32": str(zlib.crc32(part.body) & 0x7FFFFFFF),
    }
    table = decode_body(RegisterBrokerBody, part.body).topic_config_serialize_wrapper
    assert (table.topic_config_table, table.data_version) == (topics(3), VERSION)


def test_the_brokers_permission_covers_every_topic(tmp_path):
    conf = broker_conf(tmp_path, listenPort=20911, brokerPermission=4)
    (part,) = plan_registration(conf, topics(2, perm=7), VERSION)
    assert {config.perm for config in decoded(part).topic_config_table.values()} == {4}


def test_slices_have_versions_of_their_own_and_the_last_has_the_true_one(tmp_path):
    conf = broker_conf(tmp_path, listenPort=20911, enableSplitRegistration=True, splitRegistrationSize=800)
    parts = [decoded(part) for part in plan_registration(conf, topics(2000), VERSION)]
    assert [len(part.topic_config_table) for part in parts] == [800, 800, 400]
    assert len({part.data_version for part in parts}) == 3
    assert parts[-1].data_version == VERSION
    assert {name for part in parts for name in part.topic_config_table} == topics(2000).keys()


def test_a_table_too_large_for_a_frame_is_cut_even_when_nobody_asked(tmp_path):
    conf = broker_conf(tmp_path, listenPort=20911)
    parts = list(plan_registration(conf, topics(120_000), VERSION))
    assert len(parts) > 1
    assert all(len(part.body) < 16 * 1024 * 1024 - 64 * 1024 for part in parts)
    versions = [json.loads(part.body)["topicConfigSerializeWrapper"]["dataVersion"]["counter"] for part in parts]
    assert len(set(versions)) == len(parts)
    assert versions[-1] == VERSION.counter


NAMES = st.text(alphabet=st.sampled_from('aB9%-_|"\\\n\u2028\x80é'), min_size=1, max_size=8)
CONFIGS = st.builds(
    TopicConfig,
    topic_name=NAMES,
    read_queue_nums=st.integers(-1, 1 << 31),
    write_queue_nums=st.integers(0, 1024),
    perm=st.integers(0, 15),
    topic_filter_type=NAMES,
    topic_sys_flag=st.integers(0, 9),
    order=st.booleans(),
    attributes=st.dictionaries(NAMES, NAMES, max_size=2),
)


@given(st.lists(CONFIGS, max_size=4, unique_by=lambda config: config.topic_name))
def test_a_body_of_topics_that_are_encoded_one_by_one_is_the_whole_one(rows):
    with tempfile.TemporaryDirectory() as folder:
        conf = broker_conf(Path(folder), listenPort=20911)
        (part,) = plan_registration(conf, {config.topic_name: config for config in rows}, VERSION)
    assert part.body == encode_plain(rows, VERSION)


def test_a_large_registration_pauses_after_every_thousand_topics(tmp_path):
    pauses = []
    list(plan_registration(broker_conf(tmp_path), topics(2_500), VERSION, pause=lambda: pauses.append(1)))
    assert len(pauses) == 2 + 1, "and after its body"


def test_a_compressed_registration_can_be_read_again(tmp_path):
    conf = broker_conf(tmp_path, listenPort=20911, compressedRegister=True)
    (part,) = plan_registration(conf, topics(5, attributes={"queue.type": "BatchCQ"}), VERSION)
    assert part.fields["compressed"] == "true"
    assert decoded(part).topic_config_table.keys() == topics(5).keys()
    assert decoded(part).data_version == VERSION
    assert b'topic-000003 16 16 6 SINGLE_TAG {"queue.type":"BatchCQ"}' in zlib.decompress(part.body)


class NameServerDouble:
    """Remembers what it is told."""

    def __init__(self, **answer: str) -> None:
        self.requests: asyncio.Queue = asyncio.Queue()
        self.answer = answer

    async def __aenter__(self):
        self.server = Server(dict.fromkeys((103, 104, 322), self._note))
        await self.server.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def _note(self, request):
        self.requests.put_nowait(request)
        return request.reply(fields=dict(self.answer))


async def test_a_broker_registers_with_every_name_server_and_unregisters(tmp_path):
    async with NameServerDouble() as first, NameServerDouble() as second:
        conf = broker_conf(tmp_path, namesrvAddr=f"{first.address};{second.address}")
        async with running_broker(conf) as broker:
            for name_server in (first, second):
                request = name_server.requests.get_nowait()
                assert (request.code, request.version) == (103, 479)
                assert request.fields["brokerAddr"] == broker.address
        for name_server in (first, second):
            assert name_server.requests.get_nowait().code == 104


async def test_every_name_server_gets_a_large_table_that_is_encoded_beside_the_loop(tmp_path):
    async with NameServerDouble() as first, NameServerDouble() as second:
        conf = broker_conf(tmp_path, namesrvAddr=f"{first.address};{second.address}")
        async with running_broker(conf) as broker:
            first.requests.get_nowait()
            second.requests.get_nowait()
            broker.context.topics.put_all(topics(3_000), 5)
            broker.context.notify_topic_changed(topics(3_000))
            for name_server in (first, second):
                request = await name_server.requests.get()
                table = decode_body(RegisterBrokerBody, request.body).topic_config_serialize_wrapper
                assert table.topic_config_table.keys() >= topics(3_000).keys()


async def test_a_new_topic_is_announced_at_once_and_alone(tmp_path):
    async with NameServerDouble() as names:
        conf = broker_conf(tmp_path, namesrvAddr=names.address)
        async with running_broker(conf) as broker, connected(broker) as client:
            await names.requests.get()
            await send(client, b="Fresh")
            body = json.loads((await names.requests.get()).body)
            assert list(body["topicConfigSerializeWrapper"]["topicConfigTable"]) == ["Fresh"]


async def test_a_replica_learns_its_master_from_the_answer(tmp_path):
    async with NameServerDouble(masterAddr="10.0.0.1:10911", haServerAddr="10.0.0.1:10912") as names:
        conf = broker_conf(tmp_path, namesrvAddr=names.address, brokerRole="SLAVE", brokerId=1)
        async with running_broker(conf) as broker:
            assert broker.context.master_address == "10.0.0.1:10911"
            assert broker.context.master_ha_address == "10.0.0.1:10912"


async def test_a_replica_hears_of_its_master_from_the_name_server_that_knows_it(tmp_path):
    known = {"masterAddr": "10.0.0.1:10911", "haServerAddr": "10.0.0.1:10912"}
    async with NameServerDouble() as fresh, NameServerDouble(**known) as old:
        addresses = f"{fresh.address};{old.address}"
        conf = broker_conf(tmp_path, namesrvAddr=addresses, brokerRole="SLAVE", brokerId=1)
        async with running_broker(conf) as broker:
            assert broker.context.master_address == "10.0.0.1:10911"


async def test_a_replica_registers_even_without_news_as_the_answer_names_its_master(tmp_path):
    async with NameServerDouble(changed="false") as names:
        spared = broker_conf(tmp_path / "master", namesrvAddr=names.address, forceRegister=False)
        async with running_broker(spared):
            assert names.requests.get_nowait().code == 322, "a master asks first, and has no news"
            assert names.requests.empty()
        while not names.requests.empty():
            names.requests.get_nowait()
        role = {"brokerRole": "SLAVE", "brokerId": 1}
        conf = broker_conf(tmp_path / "replica", namesrvAddr=names.address, forceRegister=False, **role)
        async with running_broker(conf):
            assert names.requests.get_nowait().code == 103


async def test_a_broker_without_reachable_name_servers_still_starts(tmp_path):
    conf = broker_conf(tmp_path, namesrvAddr="127.0.0.1:1")
    async with running_broker(conf) as broker, connected(broker) as client:
        assert (await send(client)).code == 0


async def test_a_broker_that_shall_stay_hidden_does_not_register(tmp_path):
    async with NameServerDouble() as names:
        conf = broker_conf(tmp_path, namesrvAddr=names.address, disappearTimeAfterStart=60_000)
        async with running_broker(conf):
            assert names.requests.empty()


async def test_who_creates_a_topic_is_answered_when_it_has_a_route(tmp_path):
    async with NameServerDouble() as names:
        conf = broker_conf(tmp_path, namesrvAddr=names.address)
        async with running_broker(conf) as broker, connected(broker) as client:
            names.requests.get_nowait()
            await send(client, b="Fresh")
            assert "Fresh" in names.requests.get_nowait().body.decode()
            fields = {"topic": "Made", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2"}
            await client.request(17, {**fields, "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false"})
            assert "Made" in names.requests.get_nowait().body.decode()
            await send(client, b="Fresh")
            assert names.requests.empty()


async def test_a_change_that_met_an_unexpected_error_is_announced_after_the_pause(tmp_path, monkeypatch):
    monkeypatch.setattr(fence, "PAUSE_S_MIN", 0.01)
    async with NameServerDouble() as names:
        conf = broker_conf(tmp_path, namesrvAddr=names.address)
        async with running_broker(conf) as broker, connected(broker) as connection:
            real = RegisterService._register_changed

            async def fails(self, changed):
                monkeypatch.setattr(RegisterService, "_register_changed", real)
                raise KeyError("nobody thought of this")

            monkeypatch.setattr(RegisterService, "_register_changed", fails)
            assert (await send(connection, b="Fresh")).code == 0
            async with asyncio.timeout(5):
                while b"Fresh" not in (await names.requests.get()).body:
                    pass
            assert broker.context is not None and broker.context.fence.tasks["RegisterService"].failures == 1
