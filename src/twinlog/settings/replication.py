"""How a replica follows its master: commit-log transfer, acknowledgements, metadata synchronisation."""

from __future__ import annotations

from dataclasses import dataclass

from twinlog.base.addresses import check_address
from twinlog.settings.conf import conf

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationSettings:
    """How commit-log bytes and metadata travel from master to replica."""

    listen_port: int = conf("haListenPort", 10912, minimum=0, maximum=65535)  # 0 in a file: listenPort + 1
    master_address: str | None = conf("haMasterAddress", None, check=check_address, updatable=True, length_min=6)
    heartbeat_ms: int = conf("haSendHeartbeatInterval", 5_000, minimum=1, updatable=True)
    silence_ms_max: int = conf("haHousekeepingInterval", 20_000, minimum=1, updatable=True)
    # Java: 32 KiB, and one report for each. A Java replica reads into a buffer of 4 MiB, so this is safe for it too;
    # a Twinlog replica gets four at once.
    batch_bytes_max: int = conf("haTransferBatchSize", 128 * 1024, minimum=1, maximum=4 * MIB - 13, updatable=True)
    flow_control: bool = conf("haFlowControlEnable", False, updatable=True)
    bytes_per_second_max: int = conf("maxHaTransferByteInSecond", 100 * MIB, bits=64, minimum=1, updatable=True)

    # Acknowledgement
    gap_bytes_max: int = conf("haMaxGapNotInSync", 256 * MIB, old=["haSlaveFallbehindMax"], minimum=0, updatable=True)
    # Java: 3000, which is also the clients' usual patience, so its answer FLUSH_SLAVE_TIMEOUT comes too late for them.
    # After one such wait the replica is late: sends get SLAVE_NOT_AVAILABLE at once until it acknowledges again.
    ack_timeout_ms: int = conf("slaveTimeout", 2_500, minimum=1, updatable=True)
    # None: not set, so SYNC_MASTER waits for one replica. Java's default of 1 counts the master and waits for nobody.
    in_sync_replicas: int | None = conf("inSyncReplicas", None, minimum=1, updatable=True)
    # Twinlog's own: so long a SYNC master and its replica look for each other's next word before they sleep
    busy_wait_micros: int = conf("haBusyWaitMicros", 500, minimum=0, maximum=10_000, updatable=True)

    # Joining; these keys are Twinlog's own
    copy_whole_history: bool = conf("haCopyWholeHistory", False)
    reseed_allowed: bool = conf("haReseedAllowed", False)

    # Metadata; these keys are Twinlog's own too, as Java has fixed periods
    metadata_interval_ms: int = conf("slaveMetadataSyncInterval", 10_000, minimum=100, updatable=True)
    metadata_first_delay_ms: int = conf("slaveMetadataSyncFirstDelay", 3_000, minimum=0)
    metadata_pushed: bool = conf("slaveMetadataPush", False)

    @property
    def busy_wait_seconds(self) -> float:
        return self.busy_wait_micros / 1e6
