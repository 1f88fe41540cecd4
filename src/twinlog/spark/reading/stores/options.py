"""The options of `format("rocketmq_store")`."""

from __future__ import annotations

import glob
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from twinlog.spark.errors import BadOption
from twinlog.spark.option_values import OptionValues
from twinlog.spark.paths import local_path, local_text
from twinlog.spark.reading.stores.selection import SELECTING, SELECTING_IN_BATCH, Selection, selection
from twinlog.spark.schema import TABLE_COLUMNS

KINDS = ("messages", *TABLE_COLUMNS)
_KNOWN = (
    "path",
    "paths",
    "kind",
    "brokerName",
    "commitLogDirs",
    "splitBytes",
    "checkCrc",
    "failOnDataLoss",
    "includeProperties",
    "decompress",
    "maxHashSlotNum",
    "maxIndexNum",
    *SELECTING,
)
_STREAM = ("startingOffsets", "maxBytesPerTrigger")
_NAMELESS_DIRECTORIES = ("store", "data", "")


@dataclass(frozen=True, slots=True)
class StoreDirectory:
    """A store on disk, and the broker name of its rows."""

    root: Path
    broker_name: str
    commit_log_dirs: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """One read: which stores and records, and how."""

    stores: tuple[StoreDirectory, ...]
    selection: Selection = field(default_factory=Selection)
    kind: str = "messages"
    split_bytes: int = 128 << 20
    check_crc: bool = True
    fail_on_data_loss: bool = True
    include_properties: bool = True
    inflates: bool = True
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    starts_at_end: bool = field(default=False)
    trigger_bytes_max: int | None = None


def store_options(given: Mapping[str, str], *, streaming: bool = False) -> StoreOptions:
    """The options of a read; BadOption names the first invalid one, and what to write instead."""
    used, unused = (_STREAM, SELECTING_IN_BATCH) if streaming else (SELECTING_IN_BATCH, _STREAM)
    values = OptionValues(given, known=(*_KNOWN, *used), ignored=[name for name in unused if name not in used])
    kind = values.choice("kind", "messages", KINDS)
    if streaming and kind != "messages":
        raise BadOption(f"kind={kind} is a small table without a stream: read it with spark.read")
    selecting = [name for name in (*SELECTING, *SELECTING_IN_BATCH) if name in values]
    if selecting and kind != "messages":
        raise BadOption(f"{selecting[0]} chooses messages, and kind={kind} has none: filter its rows with where()")
    split_bytes = values.size("splitBytes", 128 << 20, low=1024)
    assert split_bytes is not None
    stores = _stores(values)
    return StoreOptions(
        stores=stores,
        selection=selection(values, [store.broker_name for store in stores], streaming=streaming),
        kind=kind,
        split_bytes=split_bytes,
        check_crc=values.flag("checkCrc", True),
        fail_on_data_loss=values.flag("failOnDataLoss", True),
        include_properties=values.flag("includeProperties", True),
        inflates=values.flag("decompress", True),
        index_slots=values.integer("maxHashSlotNum", 5_000_000, low=1),
        index_entries=values.integer("maxIndexNum", 20_000_000, low=1),
        starts_at_end=streaming and values.choice("startingOffsets", "earliest", ("earliest", "latest")) == "latest",
        trigger_bytes_max=values.size("maxBytesPerTrigger") if streaming else None,
    )


def _stores(values: OptionValues) -> tuple[StoreDirectory, ...]:
    roots = [root for text in _paths(values) for root in _directories(text)]
    names = [name.strip() for name in (values.text("brokerName") or "").split(",") if name.strip()]
    if names and len(names) != len(roots):
        raise BadOption(f"brokerName names {len(names)} brokers for {len(roots)} stores: give one for each, in order")
    logs = [
        local_path(part.strip(), "commitLogDirs")
        for part in (values.text("commitLogDirs") or "").split(",")
        if part.strip()
    ]
    if logs and len(roots) > 1:
        raise BadOption("commitLogDirs belongs to one store: read the stores one by one and union them")
    return tuple(
        StoreDirectory(root, names[i] if names else _name_of(root), tuple(logs) or (root / "commitlog",))
        for i, root in enumerate(roots)
    )


def _paths(values: OptionValues) -> list[str]:
    text = values.text("path")
    if text is not None:
        return [text]
    several = values.text("paths")
    if several is None:
        raise BadOption("no store directory is given: load('/path/to/store')")
    try:
        found = json.loads(several)
    except ValueError:
        found = several.split(",")
    return [str(path) for path in found]


def _directories(text: str) -> list[Path]:
    """The directories that match `text`, which may hold * and ?."""
    path = local_text(text, "store")
    found = [path]
    if any(letter in path for letter in "*?["):  # as in Spark, names with _ are not data: _history beside replicas
        found = [one for one in sorted(glob.glob(path)) if not Path(one).name.startswith("_")]
    roots = [Path(one).absolute() for one in found if Path(one).is_dir()]
    if not roots:
        raise BadOption(f"there is no store directory {text!r}: give the broker's storePathRootDir")
    return roots


def _name_of(root: Path) -> str:
    """A store does not hold its broker's name; the directory above one called `store` usually has it."""
    for part in reversed(root.parts):
        if part not in _NAMELESS_DIRECTORIES:
            return part
    return str(root)
