"""An endpoint of a comparison: a store directory or a live broker."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.errors import BadOption
from twinlog.spark.live_broker import LiveBroker
from twinlog.spark.paths import local_path, local_text

_ADDRESS = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A store directory or the address of a broker; `store` is None for a broker."""

    text: str
    store: Path | None = None
    commit_log_dirs: tuple[Path, ...] = ()
    options: ClusterOptions = field(default_factory=lambda: ClusterOptions(name_servers=()), repr=False)

    @property
    def broker(self) -> LiveBroker:
        assert self.store is None, self.text
        return LiveBroker(self.text, self.options)

    def __str__(self) -> str:
        return self.text


def parse_endpoint(text: str, options: ClusterOptions | None = None) -> Endpoint:
    """A directory, or host:port; an existing directory with such a name is a directory. Its content is not checked.

    When storePathCommitLog is elsewhere: `STORE@DIR`, or `STORE@DIR,DIR`.
    """
    options = options or ClusterOptions(name_servers=())
    plain = local_text(text, "store")
    root, _, logs = plain.partition("@") if "@" in plain and not Path(plain).is_dir() else (plain, "", "")
    path = Path(root).absolute()
    if path.is_dir() or ("/" in root and not _ADDRESS.fullmatch(text)):
        directories = tuple(local_path(part, "store") for part in logs.split(",") if part)
        return Endpoint(str(path), path, directories or (path / "commitlog",), options)
    if _ADDRESS.fullmatch(text):
        return Endpoint(text, None, (), options)
    raise BadOption(f"{text!r} is neither a store directory nor host:port of a broker: give one of them")


def error_text(error: Exception) -> str:
    """An expected error of a comparison or a measurement, in words."""
    text = f"an answer lacks {error}" if isinstance(error, KeyError) else str(error)
    return text or type(error).__name__
