"""The samples of conf/ start with one command each, take messages, and stop cleanly."""

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop.processes import free_port

from twinlog.base.addresses import Address
from twinlog.cli.cluster import ClusterFailed, plan_etcd, plan_servers
from twinlog.client import Outgoing
from twinlog.client.sync import Producer
from twinlog.settings.errors import SettingsError

CONF = Path(__file__).parents[2] / "conf"


def copied(sample: str, target: Path) -> tuple[Path, str]:
    """The sample with ports that are free here, and its name server's address."""
    names = free_port()
    target.mkdir()
    for path in (CONF / sample).iterdir():
        port = names if path.name == "namesrv.conf" else free_port(beside=(-2, 1))
        text = re.sub(r"listenPort=\d+", f"listenPort={port}", path.read_text())
        text = text.replace("127.0.0.1:9876", f"127.0.0.1:{names}")
        (target / path.name).write_text(text + "mappedFileSizeCommitLog=1048576\n" * (path.suffix == ".properties"))
    return target, f"127.0.0.1:{names}"


@pytest.mark.slow
@pytest.mark.parametrize(("sample", "brokers"), [("2m-noslave", 2), ("2m-2s-async", 4), ("2m-2s-sync", 4)])
def test_a_sample_starts_takes_messages_and_stops(sample, brokers, tmp_path):
    folder, names = copied(sample, tmp_path / sample)
    command = [sys.executable, "-m", "twinlog.cli.main", "cluster", str(folder), "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            assert any(f"cluster ready: {brokers} brokers" in line for line in lines)
            with Producer(names, "PG") as producer:
                for number in range(8):
                    assert producer.send(Outgoing("TBW102", b"%d" % number))
            process.send_signal(signal.SIGTERM)
            rest = process.stdout.read()
            assert process.wait(30) == 0, rest
        finally:
            process.kill()
    stores = sorted(path.name for path in (tmp_path / "data" / "store").iterdir())
    assert len(stores) == brokers
    assert not list((tmp_path / "data" / "store").glob("*/abort")), "every broker closed its store"


def test_brokers_with_failover_get_an_etcd_unless_one_answers_or_none_is_installed():
    free = Address("127.0.0.1", free_port())
    (planned,) = plan_etcd([free], lambda name: f"/usr/bin/{name}")
    assert (planned.name, planned.etcd, planned.arguments[0]) == ("etcd", free, "/usr/bin/etcd")
    assert f"--listen-client-urls=http://{free}" in planned.arguments
    assert "--auto-compaction-retention=1h" in planned.arguments, "else it is full after some weeks"
    (planned,) = plan_etcd([Address("::1", free.port)], lambda name: name)
    assert f"--listen-peer-urls=http://[::1]:{free.port + 1}" in planned.arguments
    with pytest.raises(ClusterFailed, match="apt-get install etcd-server"):
        plan_etcd([free], lambda _: None)
    with socket.create_server(("127.0.0.1", 0)) as running:
        assert plan_etcd([Address("127.0.0.1", running.getsockname()[1])], lambda _: None) == []
    assert plan_etcd([]) == []


def test_a_folder_without_servers_and_a_broken_file_are_refused_before_anything_starts(tmp_path):
    with pytest.raises(ClusterFailed, match=r"does not hold namesrv.conf and \*.properties files"):
        plan_servers(tmp_path)
    folder, _ = copied("2m-noslave", tmp_path / "sample")
    assert [server.name for server in plan_servers(folder)] == ["namesrv", "broker-a", "broker-b"]
    (folder / "broker-b.properties").write_text("listenPort=none\n")
    with pytest.raises(SettingsError, match="listenPort=none"):
        plan_servers(folder)
