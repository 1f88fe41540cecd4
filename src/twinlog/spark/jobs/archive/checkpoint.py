"""Spark's checkpoint of a local archive, which Spark itself does not make durable.

    _checkpoint/metadata       the id of the query
    _checkpoint/offsets/12     where batch 12 ends, written before it runs
    _checkpoint/commits/12     batch 12 is done

`_commit.json` decides which batches count, so all that matters is that it never knows more than the offsets: a batch
without them would be planned anew, perhaps with more messages, and then be passed over as committed.
"""

from __future__ import annotations

from pathlib import Path

from twinlog.base.atomic_file import sync_directory, sync_file
from twinlog.spark.jobs.archive.layout import CHECKPOINT
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
_OFFSETS, _COMMITS = "offsets", "commits"


def keep_offsets(root: Path, batch: int) -> None:
    """Return when what the checkpoint has of this batch survives a power cut; before the batch is committed."""
    checkpoint = root / CHECKPOINT
    kept = (checkpoint / "metadata", checkpoint / _OFFSETS / str(batch), checkpoint / _COMMITS / str(batch - 1))
    for path in kept:
        for one in (path, _checksum(path)):
            if one.exists():
                sync_file(one)
    for directory in dict.fromkeys((*(path.parent for path in kept), root)):
        if directory.is_dir():
            sync_directory(directory)


def drop_torn(root: Path, committed: int) -> None:
    """Remove what a power cut left half written and Spark would refuse, if nothing is lost with it.

    That is a batch that was planned and not committed, which is planned again, or the mark that a batch is done: it
    is then found to be committed. Offsets of a committed batch are durable, so they are not touched.
    """
    checkpoint = root / CHECKPOINT
    for path in [*(checkpoint / _OFFSETS).glob("[0-9]*"), *(checkpoint / _COMMITS).glob("[0-9]*")]:
        if not path.name.isdigit() or (path.parent.name == _OFFSETS and int(path.name) <= committed):
            continue
        if not path.read_bytes().startswith(b"v") or (_checksum(path).exists() and not _checksum(path).stat().st_size):
            log.warning("a file of the checkpoint was half written, and is written again", path=str(path))
            for one in (path, _checksum(path)):
                one.unlink(missing_ok=True)


def _checksum(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")
