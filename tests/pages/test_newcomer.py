"""A newcomer's path in under five minutes: install the wheel, the first message, the first replica, the dashboard."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pages.console import Reader, blocks_of, can_separate_networks, steps_of

ROOT = Path(__file__).parents[2]
MINUTES_MAX = 5  # the promise of README
FETCH = "python -c \"import urllib.request as r; print(r.urlopen('http://127.0.0.1:8088/').read().decode()[:4000])\""


@pytest.mark.interop
@pytest.mark.skipif(not can_separate_networks(), reason="this system has no network namespaces for users")
@pytest.mark.timeout(MINUTES_MAX * 60)
def test_install_message_replica_and_dashboard(tmp_path: Path):
    tree = tmp_path / "twinlog"
    copied = ("src", "conf", "pyproject.toml", "README.md", "LICENSE")
    tree.mkdir()
    for name in copied:
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tree / name)
    install, (message, replica, dashboard, *_) = install_block(), console_blocks()
    virtual = tmp_path / "venv"
    run(f"{sys.executable} {ROOT}/tools/make_venv.py {virtual}", tree)
    environment = {**os.environ, "PATH": f"{virtual}/bin:{os.environ['PATH']}", "HOME": str(tmp_path), "COLUMNS": "80"}
    for name in ("NAMESRV_ADDR", "PYTHONPATH"):
        environment.pop(name, None)
    make, *lines = install.splitlines()
    assert make.startswith("python3 -m venv"), "done above, in a way that Debian's Python without venv has, too"
    for line in lines:
        run(line, tree, environment)
    with Reader(tree, environment) as reader:
        assert reader.type("which twinlog")[1] == f"{virtual}/bin/twinlog"
        for block in (message, replica):
            for step in steps_of(block.replace("/tmp/", f"{tmp_path}/")):
                if not step.command.startswith("xxd"):
                    reader.follow(step)
        for step in steps_of(dashboard):
            reader.follow(step)
        status, page = reader.type(FETCH)
        assert status == 0 and "Twinlog" in page, page


def install_block() -> str:
    return next(block.text for block in blocks_of(ROOT / "README.md") if "pip wheel" in block.text)


def console_blocks() -> list[str]:
    return [block.text for block in blocks_of(ROOT / "README.md") if block.text.startswith("$ ")]


def run(command: str, folder: Path, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
