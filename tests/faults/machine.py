"""What a test needs of the machine: small file systems, with a power cut, and networks of its own. Root only."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

# Linux: the file system stops at once, and nothing more reaches the disk, not even its journal.
_EXT4_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = struct.pack("I", 2)


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise OSError(f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def need(*programs: str) -> None:
    """Skip with one line unless this is root with these programs."""
    missing = [name for name in programs if not shutil.which(name)]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root{' and ' + ', '.join(missing) if missing else ''}: file systems or networks of its own")


@contextlib.contextmanager
def small_disk(at: Path, size_mb: int) -> Iterator[Path]:
    """A file system in memory that is soon full."""
    need("mount", "umount")
    at.mkdir(parents=True, exist_ok=True)
    try:
        run("mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(at))
    except OSError as error:
        pytest.skip(f"no tmpfs can be mounted here: {error}")
    try:
        yield at
    finally:
        run("umount", "-l", str(at))


class PowerCut:
    """A disk (ext4 in a file) whose power can be cut: what was not flushed by then is gone.

    It is the kernel's own page cache, journal and recovery, so it holds for any program, and for any way to write.
    """

    def __init__(self, image: Path, at: Path) -> None:
        self.image, self.at = image, at

    @classmethod
    @contextlib.contextmanager
    def disk(cls, home: Path, size_mb: int = 256) -> Iterator[PowerCut]:
        need("mount", "umount", "mkfs.ext4")
        home.mkdir(parents=True, exist_ok=True)
        disk = cls(home / "disk.img", home / "disk")
        disk.at.mkdir(exist_ok=True)
        with disk.image.open("wb") as file:
            file.truncate(size_mb << 20)
        try:
            run("mkfs.ext4", "-q", "-F", str(disk.image))
            # `ip netns exec` of another test copies all mounts. A copy keeps the file system that was shut down alive,
            # unless an unmount here reaches it, for which the directory above must be a shared mount.
            run("mount", "--bind", str(home), str(home))
            run("mount", "--make-shared", str(home))
            disk._mount()
        except OSError as error:
            pytest.skip(f"no ext4 image can be mounted here: {error}")
        try:
            yield disk
        finally:
            run("umount", "-l", str(disk.at))
            run("umount", "-l", str(home))
            disk.image.unlink()

    def cut(self) -> None:
        """Nothing more reaches the disk. Writes of processes that still run fail from here on."""
        directory = os.open(self.at, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, _EXT4_IOC_SHUTDOWN, _NO_LOG_FLUSH)
        finally:
            os.close(directory)

    def back(self) -> None:
        """Power again, after all processes have ended: the file system recovers, the store is what was durable."""
        run("umount", str(self.at))
        self._mount()

    def _mount(self) -> None:
        # commit=300: the journal is not written by chance every 5 s, which would make more durable than was asked for
        run("mount", "-o", "loop,commit=300", str(self.image), str(self.at))
