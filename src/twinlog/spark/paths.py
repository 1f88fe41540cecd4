"""What a path means to jobs, sources and options: the only place that decides it.

    /data/a   data/a   file:/data/a   file:///data/a     local; driver and workers see it under the same name
    s3a://bucket/a   hdfs://host/a   dbfs:/a             refused, except for tables that only Spark writes

Stores are mapped, archives and replicas are renamed and locked: that needs a real file system. Without this check such
an address would be used as the name of a local directory, and data written there would seem to be safe.
"""

from __future__ import annotations

import re
from pathlib import Path

from twinlog.spark.errors import BadOption

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_SCHEME = re.compile(r"([^/:]*):")  # as Spark finds it: what is before a colon in the first part
_FILE = re.compile(r"file:(?://(?:localhost)?)?(?=/[^/]|/$)", re.IGNORECASE)


def local_path(given: str | Path, what: str) -> Path:
    """The absolute local path; BadOption for anything else, with the name of the option (`what`)."""
    return Path(local_text(given, what)).absolute()


def local_text(given: str | Path, what: str) -> str:
    """The local path as written, without file:; it may be relative or hold * and ?."""
    text = str(given)
    if not text.strip():
        raise BadOption(f"{what} {text!r}: the path is empty; give a directory")
    bare = text.lstrip()
    if bare != text and (is_file_address(bare) or _ADDRESS.match(bare)):
        raise BadOption(f"{what} {text!r}: an address begins with its scheme; give {bare} without the space before it")
    if is_file_address(text):
        rest = _FILE.sub("", text, count=1)
        if rest == text:
            raise BadOption(f"{what} {text!r}: this is not a local path; give /a/b or file:///a/b")
        return rest
    if found := _ADDRESS.match(text):
        hint = "mount it where the driver and all workers see it, and give that path"
        raise BadOption(f"{what} {text!r}: only local paths are supported, not {found[1]}; {hint}")
    return text


def table_location(given: str, what: str) -> str:
    """The place of a table that only Spark reads and writes: a local path or any address that Spark knows."""
    if not _ADDRESS.match(given) or is_file_address(given):
        local_text(given, what)
        if (found := _SCHEME.match(given)) and not is_file_address(given):
            raise BadOption(f"{what} {given!r}: Spark reads {found[1]} as a scheme; give {Path(given).absolute()}")
    return given


def is_file_address(text: str) -> bool:
    return text[:5].lower() == "file:"


def is_local(text: str) -> bool:
    """Whether a path of Spark's settings is local."""
    try:
        local_text(text, "path")
    except BadOption:
        return False
    return True
