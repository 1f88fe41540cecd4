"""A JAVA_HOME for the bundled Java, in a directory that no other user can change: Spark runs what is there.

<temporary directory>/twinlog-java-<uid>/<the runtime's path>/bin/java
~/.cache/twinlog/java/...        if another user owns that path, or may write to it
<a new temporary directory>/...  if the home directory is not usable either; removed when this process ends
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from twinlog.base.atomic_file import replace_file, sibling
from twinlog.base.file_modes import Modes
from twinlog.base.trusted_path import why_foreign, why_untrusted
from twinlog.spark.errors import SparkSourceError

# Spark's launcher always asks for this module. The bundled runtime does not have it and does not need it.
_LAUNCHER = """#!/bin/sh
# Runs the bundled Java without the one argument it does not accept.
for word do
    shift
    case "$word" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$word" ;;
    esac
done
exec "{java}" "$@"
"""


class NoJava(SparkSourceError):
    """Spark has no Java to run on."""


def write_launcher(java_home: Path, directory: Path | None = None) -> Path:
    """A directory for Spark's JAVA_HOME, whose `java` starts the one in `java_home`."""
    problems = []
    for base in [directory] if directory is not None else _directories():
        home = base / re.sub(r"\W+", "-", str(java_home)).strip("-")
        problem = _prepare(home / "bin")
        if problem is None:
            _write(home / "bin" / "java", _LAUNCHER.format(java=java_home / "bin" / "java"))
            return home
        problems.append(problem)
    # Not even a new directory is safe where others may write: they could rename it and replace it by their own.
    hint = (
        "give a directory that all may write to the sticky bit (chmod +t), set TMPDIR to a private directory that is "
        "not below any of these, or set JAVA_HOME to an installed Java"
    )
    raise NoJava(f"no safe directory for a Java launcher ({'; '.join(dict.fromkeys(problems))}): {hint}")


def _directories() -> Iterator[Path]:
    yield Path(tempfile.gettempdir()) / f"twinlog-java-{os.geteuid()}"
    with contextlib.suppress(RuntimeError):  # a user without a home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "twinlog" / "java"
    fresh = Path(tempfile.mkdtemp(prefix="twinlog-java-"))
    atexit.register(shutil.rmtree, fresh, ignore_errors=True)
    yield fresh


def _prepare(directory: Path) -> str | None:
    """Make the directory; returns why it cannot be used, or None."""
    try:
        for part in reversed([directory, *directory.parents]):
            with contextlib.suppress(FileExistsError):
                part.mkdir(mode=0o700)
        return why_untrusted(directory)
    except OSError as error:
        return str(error)


def _write(launcher: Path, text: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if why_foreign(launcher, os.lstat(launcher)) is not None:
            launcher.unlink()  # a replaced file would keep the other user as its owner
        elif launcher.read_text() == text:
            return
        else:
            launcher.chmod(0o700)  # a replaced file keeps its mode
    # Several programs may start at once, so each has a temporary file of its own.
    replace_file(launcher, [text.encode()], Modes(0o700), temporary=sibling(launcher, str(os.getpid())))
