"""Where messages are kept, when they reach the disk, how they are read, and when they are deleted."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from twinlog.base.file_modes import Modes, check_directory_mode, check_file_mode, parse_modes
from twinlog.settings.conf import conf
from twinlog.settings.durations import check_delay_levels, check_hours

MIB = 1024 * 1024
_QUEUE_UNIT_BYTES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """One store directory; Java's names and defaults, so that Java can open the same directory."""

    # -- Files

    # Directory of the store: queues, index, checkpoint and config; the commit log too unless storePathCommitLog is
    # given. Default: ~/store.
    root_dir: str = conf("storePathRootDir", factory=lambda: os.path.expanduser("~/store"))
    # Directory of the commit log; several, on several disks, are separated by commas. Unset: commitlog below
    # storePathRootDir.
    commit_log_dirs_given: str | None = conf("storePathCommitLog", None)
    # Directories of the commit log that get no new segments, separated by commas.
    read_only_dirs_given: str | None = conf("readOnlyCommitLogStorePaths", None)
    # Bytes of one segment of the commit log. An existing store needs the same value.
    segment_bytes: int = conf("mappedFileSizeCommitLog", 1024 * MIB, old=["mapedFileSizeCommitLog"], minimum=1024)
    # Bytes of one file of a queue, rounded up to whole entries of 20 bytes. An existing store needs the same value.
    queue_file_bytes_given: int = conf(
        "mappedFileSizeConsumeQueue", 300_000 * _QUEUE_UNIT_BYTES, old=["mapedFileSizeConsumeQueue"], minimum=1
    )
    # The same for queues of batches, whose entries have 46 bytes.
    batch_queue_file_bytes: int = conf("mapperFileSizeBatchConsumeQueue", 300_000 * 46, minimum=46)
    # Keep the bit maps of SQL92 filters, in files beside the queues.
    queue_ext_enabled: bool = conf("enableConsumeQueueExt", False)
    # Bytes of one of these files.
    queue_ext_file_bytes: int = conf("mappedFileSizeConsumeQueueExt", 48 * MIB, minimum=1024)
    # Keep an index of message keys.
    index_enabled: bool = conf("messageIndexEnable", True)
    # After a crash, rebuild from where the index was on disk too, not only the queues. Recovery may take longer.
    index_safe: bool = conf("messageIndexSafe", False)
    # Hash slots of one index file. An existing store needs the same value.
    index_slots: int = conf("maxHashSlotNum", 5_000_000, minimum=1)
    # Entries of one index file. An existing store needs the same value.
    index_entries: int = conf("maxIndexNum", 20_000_000, minimum=2)
    # Mode of new directories, in octal; the umask does not matter.
    directory_mode: str = conf("storeDirectoryMode", "0700", check=check_directory_mode)
    # Mode of new files, in octal; the umask does not matter.
    file_mode: str = conf("storeFileMode", "0600", check=check_file_mode)
    # Plug-ins of the store, module:factory, separated by commas. See plug-ins.md.
    plugins: str = conf("messageStorePlugIn", "")

    # -- Writing

    # SYNC_FLUSH acknowledges a send when it is on disk, ASYNC_FLUSH before.
    flush_disk_type: Literal["ASYNC_FLUSH", "SYNC_FLUSH"] = conf("flushDiskType", "ASYNC_FLUSH", updatable=True)
    # Milliseconds between two checks whether the commit log must be flushed.
    flush_interval_ms: int = conf("flushIntervalCommitLog", 500, minimum=1, updatable=True)
    # Pages of 4096 bytes that must be new for a flush; 0: any.
    flush_least_pages: int = conf("flushCommitLogLeastPages", 4, minimum=0, updatable=True)
    # Milliseconds after which the commit log is flushed even if little is new.
    flush_thorough_interval_ms: int = conf("flushCommitLogThoroughInterval", 10_000, minimum=1, updatable=True)
    # The same for queues and index: milliseconds between two checks.
    queue_flush_interval_ms: int = conf("flushIntervalConsumeQueue", 1_000, minimum=1, updatable=True)
    # The same for queues and index: pages that must be new.
    queue_flush_least_pages: int = conf("flushConsumeQueueLeastPages", 2, minimum=0, updatable=True)
    # The same for queues and index: milliseconds after which they are flushed.
    queue_flush_thorough_interval_ms: int = conf("flushConsumeQueueThoroughInterval", 60_000, minimum=1, updatable=True)
    # Milliseconds that a send waits for SYNC_FLUSH; then it is answered with FLUSH_DISK_TIMEOUT.
    sync_flush_timeout_ms: int = conf("syncFlushTimeout", 5_000, minimum=1, updatable=True)
    # Most bytes of a message's body.
    message_bytes_max: int = conf("maxMessageSize", 4 * MIB, minimum=1, maximum=15 * MIB, updatable=True)
    # With SYNC_FLUSH: let consumers read messages that are not on disk yet.
    read_uncommitted: bool = conf("readUnCommitted", False, updatable=True)
    # Write a checksum of the whole record behind the properties of each message, as Java does when this is set (its
    # default is false). Consumers see it as property __CRC32#. Where it is, it is checked by recovery, reads, replicas
    # and `twinlog store verify`; bits that flip in properties are found by it alone. Properties of more than 32,747
    # bytes leave no room for it (their limit is 32,767), and are stored without, unless forceVerifyPropCRC is set.
    property_crc_enabled: bool = conf("enabledAppendPropCRC", True)
    # Treat a record without that checksum as damaged in recovery. Only for logs all of whose records have it.
    property_crc_forced: bool = conf("forceVerifyPropCRC", False)
    # Allow topic names of more than 127 bytes, in records of version 2.
    long_topics_enabled: bool = conf("autoMessageVersionOnTopicLen", True)
    # Check the bodies' checksums in recovery.
    crc_checked_on_recover: bool = conf("checkCRCOnRecover", True)

    # -- Reading

    # Most bytes in the answer to a pull of recent messages.
    transfer_bytes_in_memory: int = conf("maxTransferBytesOnMessageInMemory", 256 * 1024, minimum=1, updatable=True)
    # Most messages in the answer to a pull of recent messages.
    transfer_count_in_memory: int = conf("maxTransferCountOnMessageInMemory", 32, minimum=1, updatable=True)
    # Most bytes in the answer to a pull of old messages.
    transfer_bytes_on_disk: int = conf("maxTransferBytesOnMessageInDisk", 64 * 1024, minimum=1, updatable=True)
    # Most messages in the answer to a pull of old messages.
    transfer_count_on_disk: int = conf("maxTransferCountOnMessageInDisk", 8, minimum=1, updatable=True)
    # Most bytes of queue entries, 20 each, that a pull with a filter examines.
    filter_scan_bytes_max: int = conf("maxFilterMessageSize", 16_000, minimum=20, updatable=True)
    # Most messages in the answer to a query by key.
    query_count_max: int = conf("maxMsgsNumBatch", 64, minimum=1, updatable=True)
    # Messages that a query by unique key returns at most, whatever number it asks for.
    unique_query_count: int = conf("defaultQueryMaxNum", 32, minimum=1, updatable=True)
    # Percent of this machine's memory that counts as the recent end of the log. A replica uses 10 less unless it is
    # given.
    memory_percent: int = conf("accessMessageInMemoryMaxRatio", 40, minimum=0, maximum=100, updatable=True)
    # A replica corrects the offset of a consumer that asks beyond a queue's end; otherwise it answers to try again.
    offset_checked_on_replica: bool = conf("offsetCheckInSlave", False, updatable=True)

    # -- Deleting

    # Hours of the day at which expired segments are deleted, such as 04;16.
    delete_hours: str = conf("deleteWhen", "04", check=check_hours, updatable=True)
    # Hours after its last write at which a segment expires.
    reserved_hours: int = conf("fileReservedTime", 72, minimum=0, updatable=True)
    # Percent of used disk above which expired segments are deleted at any hour.
    disk_percent_max: int = conf("diskMaxUsedSpaceRatio", 75, minimum=10, maximum=95, updatable=True)
    # Percent of used disk above which segments are deleted before they expire; used within 30 to 85. A new segment
    # goes to a directory below it.
    disk_percent_forcible: int = conf("diskSpaceCleanForciblyRatio", 85, minimum=10, maximum=99, updatable=True)
    # Percent of used disk above which sends are refused; used within 35 to 90.
    disk_percent_full: int = conf("diskSpaceWarningLevelRatio", 90, minimum=10, maximum=100, updatable=True)
    # Allow deleting segments before they expire.
    forcible_cleaning: bool = conf("cleanFileForciblyEnable", True, updatable=True)
    # Milliseconds between two checks for segments to delete.
    clean_interval_ms: int = conf("cleanResourceInterval", 10_000, minimum=100)
    # Most segments that one check deletes.
    delete_files_max: int = conf("deleteFileBatchMax", 10, minimum=1, updatable=True)

    # -- Delayed messages

    # Delay of each level, level 1 first; units s, m, h, d.
    delay_levels: str = conf(
        "messageDelayLevel", "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", check=check_delay_levels
    )
    # Milliseconds between two writes of the delay levels' progress to disk.
    delay_offset_flush_interval_ms: int = conf("flushDelayOffsetInterval", 10_000, bits=64, minimum=1)
    # Accept messages with a delivery time of their own.
    timer_enabled: bool = conf("timerWheelEnable", True)
    # Milliseconds to which delivery times are rounded.
    timer_precision_ms: int = conf("timerPrecisionMs", 1_000, minimum=1)
    # Most seconds that a delivery time may be ahead.
    timer_delay_seconds_max: int = conf("timerMaxDelaySec", 3 * 24 * 3600, minimum=1, updatable=True)

    @property
    def commit_log_dirs(self) -> tuple[str, ...]:
        """Where segments may be, those that get no new ones too."""
        named = _split(self.commit_log_dirs_given or "") or (os.path.join(self.root_dir, "commitlog"),)
        return tuple(dict.fromkeys((*named, *self.read_only_dirs)))

    @property
    def read_only_dirs(self) -> tuple[str, ...]:
        """Where no new segment may be made."""
        return _split(self.read_only_dirs_given or "")

    @property
    def modes(self) -> Modes:
        """Of what the store makes; what is there keeps its own."""
        return parse_modes(self.file_mode, self.directory_mode)

    @property
    def queue_file_bytes(self) -> int:
        """Rounded up to whole 20-byte units, as Java does."""
        return -(-self.queue_file_bytes_given // _QUEUE_UNIT_BYTES) * _QUEUE_UNIT_BYTES


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
