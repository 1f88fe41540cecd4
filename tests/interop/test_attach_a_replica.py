"""docs/attach-a-replica.md: its commands, as they stand there, make a replica of a real Java master."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop.java_rocketmq import JavaRocketmq
from tests.interop.patient import WaitingProducer
from tests.interop.processes import free_port
from tests.interop.replica_pair import same_logs, until
from tests.interop.toolchain import VERSIONS

from twinlog.client import Outgoing

pytestmark = [pytest.mark.interop, pytest.mark.timeout(660)]
GUIDE = Path(__file__).parents[2] / "docs" / "attach-a-replica.md"


def commands(**values: str) -> str:
    """The guide's shell blocks as one script, with our addresses and sizes in place of its examples."""
    text = "\n".join(re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE))
    for name, value in values.items():
        text, count = re.subn(rf"^{name}=\S+", f"{name}={value}", text, flags=re.MULTILINE)
        assert count == 1, f"the guide sets {name} once"
    port = values["listenPort"]
    return text.replace("$HERE:10911", f"$HERE:{port}")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_guides_commands_attach_a_replica_to_a_java_master(version: str, tmp_path: Path):
    java = JavaRocketmq(version)
    with (
        java.name_server(tmp_path / "namesrv") as names,
        java.broker(tmp_path / "master", names.address, mappedFileSizeCommitLog=str(1 << 20)) as master,
    ):
        with WaitingProducer(names.address, "PG") as producer:
            for number in range(2500):
                producer.send(Outgoing("TBW102", b"%d " % number + b"x" * 500, keys=f"k{number}"))
        script = commands(
            NAMESRV=names.address,
            MASTER=master.address,
            HERE="127.0.0.1",
            listenPort=str(free_port(beside=(-2, 1))),
            mappedFileSizeCommitLog=str(1 << 20),
        )
        environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        home = tmp_path / "replica"
        home.mkdir()
        done = subprocess.run(
            ["bash", "-e", "-c", script], cwd=home, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr + (home / "replica.log").read_text()[-2000:]
        assert "equal: 25" in done.stdout
        until(lambda: same_logs(master.store, home / "store"), "the whole history is there", 10)
