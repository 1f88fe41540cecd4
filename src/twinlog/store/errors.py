"""What can go wrong in a store. Each message names the numbers, what they mean and the next step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path


class StoreError(Exception):
    """Base of every error the store raises."""


@contextlib.contextmanager
def system_errors_as(kind: Callable[[Path, OSError], StoreError], root: Path) -> Iterator[None]:
    """Turn an OSError raised inside into an error of `kind`, which quotes it."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise kind(root, error) from error


class OnDisk(StoreError):
    """The bytes are not in memory: read them in a thread."""


class UnderRepair(StoreError):
    """A patient read has met a damaged record that is being fetched from a twin: read again when that is over."""

    def __init__(self, physical_offset: int) -> None:
        super().__init__(f"the record at {physical_offset} is damaged, and being repaired")
        self.physical_offset = physical_offset


class StoreLocked(StoreError):
    """Another process (ours or Java's) has this store open."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is locked by a running broker: stop that broker, or use another storePathRootDir")


class StoreUnusable(StoreError):
    """The system refuses to read or write what the store needs."""

    def __init__(self, root: Path, cause: OSError) -> None:
        super().__init__(
            f"the store in {root} cannot be opened: {cause}; check storePathRootDir, who may write there, and its disk"
        )


class NotClosed(StoreError):
    """Queues, index or checkpoint could not be written at the end."""

    def __init__(self, root: Path, cause: OSError) -> None:
        super().__init__(
            f"the store in {root} was not closed cleanly: {cause}; its log is whole, and the next start rebuilds the "
            f"rest from it, once there is space"
        )


class RecoveryStopped(StoreError):
    """Recovery was asked to stop before it had finished; nothing is lost."""

    def __init__(self, root: Path, bytes_left: int) -> None:
        super().__init__(f"recovery of {root} was stopped with {bytes_left} bytes to go: the next start does it again")


class SegmentSizeMismatch(StoreError):
    """A segment file does not have the size the settings ask for."""

    def __init__(self, path: Path, *, found: int, expected: int, setting: str) -> None:
        super().__init__(
            f"{path} has {found} bytes instead of {expected} by {setting}: set {setting} to the value the store was "
            f"written with, or restore the file from a copy"
        )


class ForeignFile(StoreError):
    """A segment directory holds something that is not a segment; Java would refuse to start as well."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is not a segment (20 digits): move it out of the segment directory")


class ReadOnlySegment(StoreError):
    """A segment must be written to and is read-only."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} must be written to, as the log ends in it or it is damaged, and is read-only: "
            f"move it to a directory of storePathCommitLog"
        )


class SegmentGap(StoreError):
    """Two neighbouring segment files do not touch."""

    def __init__(self, *, ends: int, next_begins: int) -> None:
        super().__init__(
            f"the commit log has no file for bytes {ends} to {next_begins}: restore the missing files, "
            f"or move the files before {next_begins} away"
        )


class QueueTypeMismatch(StoreError):
    """A topic's queues lie in the directory of the other kind."""

    def __init__(self, topic: str, *, found: str, expected: str) -> None:
        super().__init__(
            f"the queues of topic {topic} are {found}, its queue.type attribute is {expected}: "
            f"correct the topic in config/topics.json, or move its queue directory away to have it rebuilt"
        )


class AllocationFailed(StoreError, OSError):
    """The next segment could not be given its blocks: most often the disk is full."""

    def __init__(self, path: Path, size: int, cause: OSError) -> None:
        super().__init__(f"cannot allocate {size} bytes for {path}: {cause}; free space or lower fileReservedTime")


class FlushFailed(StoreError):
    """The disk refused to make written bytes durable; the store takes no more messages until it is reopened."""

    def __init__(self, path: Path, cause: OSError) -> None:
        super().__init__(
            f"flush of {path} failed: {cause}; the kernel may have dropped those pages, so restart the broker "
            f"(recovery checks every record) and check the disk"
        )


class OffsetGap(StoreError):
    """Replicated bytes do not begin where the log ends."""

    def __init__(self, *, log_end: int, data_begins: int) -> None:
        super().__init__(f"log ends at {log_end}, replicated bytes begin at {data_begins}: ask the master again")


class DamagedTransfer(StoreError, OSError):
    """A record from the master is not valid; also an OSError, as a broken connection would be."""

    def __init__(self, physical_offset: int, reason: str) -> None:
        super().__init__(
            f"the record at {physical_offset} arrived damaged ({reason}): reconnecting asks the master for it again"
        )


class DispatchFailed(StoreError):
    """Queues, index or a plug-in failed on a replica's records with something other than an OSError.

    To go on would leave a hole in the queues, so the broker ends.
    """

    def __init__(self, physical_offset: int) -> None:
        super().__init__(
            f"the records from {physical_offset} on are in the log but not in the queues, because a dispatcher failed; "
            f"this store takes no more records: start the broker again, recovery dispatches them"
        )


class StoreClosed(StoreError):
    """The store was used after `close`."""

    def __init__(self) -> None:
        super().__init__("the store is closed: open it again before using it")


class NotAStore(StoreError):
    """The directory holds no commit log."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} holds no commit log: give the storePathRootDir of a broker")


class PluginError(StoreError):
    """`messageStorePlugIn` names something that cannot be loaded."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"messageStorePlugIn {name!r}: {why}; write module:factory, several separated by commas")
