"""How commands open a stopped store for writing: with the sizes that its files have, and the kinds of its topics."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from twinlog.base.clock import wall_clock_ms
from twinlog.metadata.tables import open_tables
from twinlog.settings.broker_conf import load_broker_conf
from twinlog.settings.store import StoreSettings
from twinlog.store.log.segment import segment_size_of


def stored_settings(directory: Path | None, config: Path | None) -> StoreSettings:
    """The store's settings: sizes as its files have them, the rest from its configuration file if there is one."""
    settings = load_broker_conf(config).store if config is not None else StoreSettings()
    if directory is not None:
        settings = dataclasses.replace(settings, root_dir=str(directory))
    root = Path(settings.root_dir)
    sizes = {
        "segment_bytes": segment_size_of(map(Path, settings.commit_log_dirs)) or 0,
        "queue_file_bytes_given": _queue_file_size(root / "consumequeue"),
        "batch_queue_file_bytes": _queue_file_size(root / "batchconsumequeue"),
    }
    return dataclasses.replace(settings, **{name: size for name, size in sizes.items() if size})


def topic_kinds(settings: StoreSettings) -> Callable[[str], str]:
    """The kind of queue that each topic of the store has."""
    tables = open_tables(str(Path(settings.root_dir) / "config"), wall_clock_ms(), modes=settings.modes)
    tables.load()

    def kind(topic: str) -> str:
        config = tables.topics.get(topic)
        return config.attributes.get("queue.type", "SimpleCQ") if config is not None else "SimpleCQ"

    return kind


def _queue_file_size(directory: Path) -> int:
    """The size of the files of these queues, which all have the same; 0 when there are none."""
    files = (path for path in directory.glob("*/*/*") if path.is_file())
    return max((path.stat().st_size for path in files), default=0)
