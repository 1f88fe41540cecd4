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

    # Files
    root_dir: str = conf("storePathRootDir", factory=lambda: os.path.expanduser("~/store"))
    commit_log_dirs_given: str | None = conf("storePathCommitLog", None)  # one, or several separated by commas
    read_only_dirs_given: str | None = conf("readOnlyCommitLogStorePaths", None)  # they get no new segments
    segment_bytes: int = conf("mappedFileSizeCommitLog", 1024 * MIB, old=["mapedFileSizeCommitLog"], minimum=1024)
    queue_file_bytes_given: int = conf(
        "mappedFileSizeConsumeQueue", 300_000 * _QUEUE_UNIT_BYTES, old=["mapedFileSizeConsumeQueue"], minimum=1
    )
    batch_queue_file_bytes: int = conf("mapperFileSizeBatchConsumeQueue", 300_000 * 46, minimum=46)
    queue_ext_enabled: bool = conf("enableConsumeQueueExt", False)
    queue_ext_file_bytes: int = conf("mappedFileSizeConsumeQueueExt", 48 * MIB, minimum=1024)
    index_enabled: bool = conf("messageIndexEnable", True)
    index_safe: bool = conf("messageIndexSafe", False)
    index_slots: int = conf("maxHashSlotNum", 5_000_000, minimum=1)
    index_entries: int = conf("maxIndexNum", 20_000_000, minimum=2)
    directory_mode: str = conf("storeDirectoryMode", "0700", check=check_directory_mode)  # of new directories
    file_mode: str = conf("storeFileMode", "0600", check=check_file_mode)  # of new files, whatever the umask
    plugins: str = conf("messageStorePlugIn", "")  # module:factory, comma-separated

    # Writing
    flush_disk_type: Literal["ASYNC_FLUSH", "SYNC_FLUSH"] = conf("flushDiskType", "ASYNC_FLUSH", updatable=True)
    flush_interval_ms: int = conf("flushIntervalCommitLog", 500, minimum=1, updatable=True)
    flush_least_pages: int = conf("flushCommitLogLeastPages", 4, minimum=0, updatable=True)
    flush_thorough_interval_ms: int = conf("flushCommitLogThoroughInterval", 10_000, minimum=1, updatable=True)
    queue_flush_interval_ms: int = conf("flushIntervalConsumeQueue", 1_000, minimum=1, updatable=True)
    queue_flush_least_pages: int = conf("flushConsumeQueueLeastPages", 2, minimum=0, updatable=True)
    queue_flush_thorough_interval_ms: int = conf("flushConsumeQueueThoroughInterval", 60_000, minimum=1, updatable=True)
    sync_flush_timeout_ms: int = conf("syncFlushTimeout", 5_000, minimum=1, updatable=True)
    message_bytes_max: int = conf("maxMessageSize", 4 * MIB, minimum=1, maximum=15 * MIB, updatable=True)
    read_uncommitted: bool = conf("readUnCommitted", False, updatable=True)  # SYNC_FLUSH: read before it is on disk
    property_crc_enabled: bool = conf("enabledAppendPropCRC", False)
    property_crc_forced: bool = conf("forceVerifyPropCRC", False)
    long_topics_enabled: bool = conf("autoMessageVersionOnTopicLen", True)
    crc_checked_on_recover: bool = conf("checkCRCOnRecover", True)

    # Reading
    transfer_bytes_in_memory: int = conf("maxTransferBytesOnMessageInMemory", 256 * 1024, minimum=1, updatable=True)
    transfer_count_in_memory: int = conf("maxTransferCountOnMessageInMemory", 32, minimum=1, updatable=True)
    transfer_bytes_on_disk: int = conf("maxTransferBytesOnMessageInDisk", 64 * 1024, minimum=1, updatable=True)
    transfer_count_on_disk: int = conf("maxTransferCountOnMessageInDisk", 8, minimum=1, updatable=True)
    filter_scan_bytes_max: int = conf("maxFilterMessageSize", 16_000, minimum=20, updatable=True)
    query_count_max: int = conf("maxMsgsNumBatch", 64, minimum=1, updatable=True)
    unique_query_count: int = conf("defaultQueryMaxNum", 32, minimum=1, updatable=True)  # whatever the query asks for
    memory_percent: int = conf("accessMessageInMemoryMaxRatio", 40, minimum=0, maximum=100, updatable=True)
    offset_checked_on_replica: bool = conf("offsetCheckInSlave", False, updatable=True)

    # Deleting
    delete_hours: str = conf("deleteWhen", "04", check=check_hours, updatable=True)
    reserved_hours: int = conf("fileReservedTime", 72, minimum=0, updatable=True)
    disk_percent_max: int = conf("diskMaxUsedSpaceRatio", 75, minimum=10, maximum=95, updatable=True)
    disk_percent_forcible: int = conf("diskSpaceCleanForciblyRatio", 85, minimum=10, maximum=99, updatable=True)
    disk_percent_full: int = conf("diskSpaceWarningLevelRatio", 90, minimum=10, maximum=100, updatable=True)
    forcible_cleaning: bool = conf("cleanFileForciblyEnable", True, updatable=True)
    clean_interval_ms: int = conf("cleanResourceInterval", 10_000, minimum=100)
    delete_files_max: int = conf("deleteFileBatchMax", 10, minimum=1, updatable=True)

    # Delayed messages
    delay_levels: str = conf(
        "messageDelayLevel", "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", check=check_delay_levels
    )
    delay_offset_flush_interval_ms: int = conf("flushDelayOffsetInterval", 10_000, bits=64, minimum=1)
    timer_enabled: bool = conf("timerWheelEnable", True)
    timer_precision_ms: int = conf("timerPrecisionMs", 1_000, minimum=1)
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
