"""docs/tutorial.md: every command runs, and prints what the page shows."""

import os
import shutil
from pathlib import Path

import pytest
from tests.failover.etcd_server import etcd_program
from tests.pages.console import Reader, blocks_of, can_separate_networks, steps_of, tools_of

ROOT = Path(__file__).parents[2]
BLOCKS = blocks_of(ROOT / "docs" / "tutorial.md")
KILL = "pkill -9 -f broker-a-1.properties"
LEADER = "twinlog failover list | grep -o 'master 127.0.0.1:109[123]1'"
pytestmark = [
    pytest.mark.skipif(not can_separate_networks(), reason="this system has no network namespaces for users"),
    pytest.mark.timeout(400),
]


@pytest.mark.interop
@pytest.mark.spark
def test_every_block_of_the_first_hour_runs(tmp_path: Path):
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    path = f"{tools_of(tmp_path / 'bin')}:{Path(etcd_program()).parent}"
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path), "COLUMNS": "80"}
    environment.pop("NAMESRV_ADDR", None)
    with Reader(tmp_path, environment) as reader:
        for number, block in enumerate(BLOCKS):
            text = block.text.replace("/tmp/", f"{tmp_path}/")
            if block.language == "python":
                assert "one tea" in reader.run_python(text, f"block_{number}")
                continue
            for step in steps_of(text):
                if step.command == KILL:  # the page says so, too; and no broker of another test
                    leader = f"broker-a-{reader.type(LEADER)[1].strip()[-2]}"
                    step.command = f"pkill -9 -f {tmp_path}.*{leader}.properties"
                reader.follow(step)
