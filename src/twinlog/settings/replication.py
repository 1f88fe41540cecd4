"""How a replica follows its master: commit-log transfer, acknowledgements, metadata synchronisation."""

from __future__ import annotations

from dataclasses import dataclass

from twinlog.base.address_list import check_address_list
from twinlog.base.addresses import check_address
from twinlog.settings.conf import conf

MIB = 1024 * 1024
SECRET_LENGTH_MIN = 16


def secret_problem(text: str) -> str | None:
    """What is wrong with a secret."""
    if len(text) >= SECRET_LENGTH_MIN:
        return None
    return f"has fewer than {SECRET_LENGTH_MIN} characters; make one with `openssl rand -hex 32`"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationSettings:
    """How commit-log bytes and metadata travel from master to replica."""

    # -- Transfer

    # Port on which a master listens for replicas. Unset or 0: listenPort + 1.
    listen_port: int = conf("haListenPort", 10912, minimum=0, maximum=65535)
    # host:port of the master's haListenPort, for a replica that does not take it from the name servers.
    master_address: str | None = conf("haMasterAddress", None, check=check_address, updatable=True, length_min=6)
    # Milliseconds without data after which master and replica send a heartbeat.
    heartbeat_ms: int = conf("haSendHeartbeatInterval", 5_000, minimum=1, updatable=True)
    # Milliseconds without data from the peer after which the connection is closed.
    silence_ms_max: int = conf("haHousekeepingInterval", 20_000, minimum=1, updatable=True)
    # Most bytes of log in one transfer; a Twinlog replica gets four at once. Java's default is 32768, but a Java
    # replica reads up to 4 MiB.
    batch_bytes_max: int = conf("haTransferBatchSize", 128 * 1024, minimum=1, maximum=4 * MIB - 13, updatable=True)
    # Limit the transfer to each replica to maxHaTransferByteInSecond.
    flow_control: bool = conf("haFlowControlEnable", False, updatable=True)
    # Most bytes per second to one replica when haFlowControlEnable is true.
    bytes_per_second_max: int = conf("maxHaTransferByteInSecond", 100 * MIB, bits=64, minimum=1, updatable=True)

    # -- Acknowledgement

    # Bytes that a replica may be behind and still count as in sync.
    gap_bytes_max: int = conf("haMaxGapNotInSync", 256 * MIB, old=["haSlaveFallbehindMax"], minimum=0, updatable=True)
    # Milliseconds that a send waits for replicas; then it is answered with FLUSH_SLAVE_TIMEOUT, and sends get
    # SLAVE_NOT_AVAILABLE at once until the replica acknowledges again. Java's default is 3000, which is also how long
    # clients usually wait: its answer comes too late for them.
    ack_timeout_ms: int = conf("slaveTimeout", 2_500, minimum=1, updatable=True)
    # Brokers, the master included, that must hold a message before a SYNC_MASTER acknowledges it. Unset: 2, the
    # master and one replica. Java's default of 1 waits for none.
    in_sync_replicas: int | None = conf("inSyncReplicas", None, minimum=1, updatable=True)
    # Milliseconds that a replica may be behind without having caught up once. Then it is not in sync until it has.
    not_caught_up_ms_max: int = conf("haMaxTimeSlaveNotCatchup", 15_000, minimum=1, updatable=True)
    # A SYNC_MASTER acknowledges with fewer brokers than inSyncReplicas while some are not in sync.
    in_sync_adapts: bool = conf("enableAutoInSyncReplicas", False, updatable=True)
    # Brokers, the master included, that must hold a message even then. 1: the master alone.
    in_sync_replicas_min: int = conf("minInSyncReplicas", 1, minimum=1, updatable=True)
    # Microseconds that a SYNC_MASTER and its replica poll for each other's answer before they sleep; 0: never.
    busy_wait_micros: int = conf("haBusyWaitMicros", 500, minimum=0, maximum=10_000, updatable=True)

    # -- Who may be a replica

    # Secret that a master and its Twinlog replicas have in common, at least 16 characters. Each proves to the other
    # that it knows it before a byte of the log is sent, and others get none. It is not shown by requests. Java brokers
    # cannot prove it: a master lets them in by haReplicasFrom, and a replica with a secret follows no Java master.
    shared_secret: str | None = conf("haSharedSecret", None, check=secret_problem)
    # Addresses and networks from which replicas need no proof, 192.0.2.1;10.0.0.0/8. If this or haSharedSecret is set,
    # a peer from another address without a proof gets neither the log nor checksums of it, and does not count.
    replicas_from: str = conf("haReplicasFrom", "", check=check_address_list, updatable=True)

    # TLS between Twinlog brokers on the HA port: a replica connects with it, by the keys tls.client.*, and a master
    # takes it beside clear text, by the keys tls.server.*. Java brokers use clear text.
    tls_enabled: bool = conf("haTlsEnable", False)
    # A master refuses clear text on the HA port, and so every Java replica; a replica uses TLS.
    tls_required: bool = conf("haTlsRequired", False)
    # Most connections to the HA port. One that has not said who it is makes room for the next.
    connections_max: int = conf("maxReplicaConnections", 128, minimum=1, updatable=True)

    # -- Joining

    # An empty replica copies the master's whole log. Otherwise it begins at the newest segment, as in Java.
    copy_whole_history: bool = conf("haCopyWholeHistory", False)
    # A replica whose next bytes the master has deleted may set its log aside and begin anew. Otherwise it does not
    # join, and logs why.
    reseed_allowed: bool = conf("haReseedAllowed", False)

    # A record of the log that a read finds damaged is fetched from the master, or from a replica, and written again.
    repairs_from_twin: bool = conf("haRepairFromTwin", True, updatable=True)

    # -- Metadata

    # Milliseconds between two rounds in which a replica takes over topics, groups and offsets.
    metadata_interval_ms: int = conf("slaveMetadataSyncInterval", 10_000, minimum=100, updatable=True)
    # Milliseconds before the first of these rounds.
    metadata_first_delay_ms: int = conf("slaveMetadataSyncFirstDelay", 3_000, minimum=0)
    # Ask a Twinlog master to report changes at once, so that a replica does not wait for its next round.
    metadata_pushed: bool = conf("slaveMetadataPush", False)

    @property
    def busy_wait_seconds(self) -> float:
        return self.busy_wait_micros / 1e6
