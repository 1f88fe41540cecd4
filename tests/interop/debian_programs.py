"""Programs of Debian for tests: from PATH, or fetched once with apt-get into the cache of the tests, without root."""

from __future__ import annotations

import contextlib
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from tests.interop.toolchain import cache_directory


@functools.cache
def debian_program(package: str, program: str) -> str:
    """The path of a program, or a skip with one line that says why there is none."""
    if found := shutil.which(program):
        return found
    cached = cache_directory() / package.removesuffix("-server") / "usr" / "bin" / program
    if not cached.exists():
        problem = _fetch(package, cached.parents[2])
        if problem:
            pytest.skip(f"needs {program}: not on PATH, and {problem}; install {package} to run this test")
    return str(cached)


def _fetch(package: str, target: Path) -> str | None:
    """Unpack Debian's package below `target`; returns the problem, if there is one."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        return "this is not a Debian machine"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        private = [
            "-o",
            f"Dir::State::lists={work}/lists",
            "-o",
            f"Dir::Cache={work}/cache",
            "-o",
            "Debug::NoLocking=1",
        ]
        Path(work, "lists", "partial").mkdir(parents=True)
        Path(work, "cache", "archives", "partial").mkdir(parents=True)
        plain = [["apt-get", "download", package]]
        with_lists = [["apt-get", *private, "update"], ["apt-get", *private, "download", package]]
        for commands in (plain, with_lists):
            if all(subprocess.run(one, cwd=work, capture_output=True).returncode == 0 for one in commands):
                archive = next(Path(work).glob(f"{package}_*.deb"))
                subprocess.run(["dpkg-deb", "-x", archive, Path(work, "root")], check=True, capture_output=True)
                with contextlib.suppress(OSError):  # another worker was faster
                    Path(work, "root").rename(target)
                return None
    return f"apt-get cannot fetch {package}"
