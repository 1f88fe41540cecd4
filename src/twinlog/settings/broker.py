"""Who a broker is, and how it treats topics, groups and clients."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Literal

from twinlog.base.addresses import check_addresses, check_bind_address, check_host, java_address_text, local_address
from twinlog.base.system_names import TRACE_TOPIC
from twinlog.settings.conf import conf

TOPIC_QUEUES_MAX = 65_536  # of one topic on one broker, whatever a file, a master or a name server says
BrokerRole = Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """One broker, apart from its store and its replication."""

    # Identity
    cluster_name: str = conf("brokerClusterName", "DefaultCluster")
    broker_name: str = conf("brokerName", factory=lambda: socket.gethostname() or "DEFAULT_BROKER")
    broker_id: int = conf("brokerId", 0, bits=64, minimum=-1, updatable=True)
    broker_role: BrokerRole = conf("brokerRole", "ASYNC_MASTER", updatable=True)
    region_id: str = conf("regionId", "DefaultRegion")

    # Network
    namesrv_addr: str | None = conf("namesrvAddr", None, check=check_addresses, updatable=True)
    listen_port: int = conf("listenPort", 10911, minimum=0, maximum=65535)
    bind_address: str = conf("bindAddress", "0.0.0.0", check=check_bind_address)
    broker_ip1: str = conf("brokerIP1", factory=local_address, check=check_host)
    broker_ip2: str = conf("brokerIP2", factory=local_address, check=check_host)
    metrics_port: int | None = conf("metricsPort", None, minimum=0, maximum=65535)  # Twinlog's own; None: no metrics

    # Registration
    permission: int = conf("brokerPermission", 6, minimum=0, maximum=7, updatable=True)
    register_interval_ms: int = conf("registerNameServerPeriod", 30_000, updatable=True)  # used within 10 to 60 s
    register_timeout_ms: int = conf("registerBrokerTimeoutMills", 24_000, minimum=1, updatable=True)
    register_always: bool = conf("forceRegister", True, updatable=True)
    register_compressed: bool = conf("compressedRegister", False, updatable=True)
    register_split: bool = conf("enableSplitRegistration", False, updatable=True)
    register_split_topics: int = conf("splitRegistrationSize", 800, minimum=1, updatable=True)
    disappear_ms_after_start: int = conf("disappearTimeAfterStart", -1)

    # Topics and groups
    topics_auto_created: bool = conf("autoCreateTopicEnable", True, updatable=True)
    default_topic_queues: int = conf("defaultTopicQueueNums", 8, minimum=1, maximum=TOPIC_QUEUES_MAX)
    groups_auto_created: bool = conf("autoCreateSubscriptionGroup", True, updatable=True)
    cluster_topic: bool = conf("clusterTopicEnable", True)
    broker_topic: bool = conf("brokerTopicEnable", True)
    trace_on: bool = conf("traceOn", True, updatable=True)
    trace_topic: bool = conf("traceTopicEnable", False)
    trace_topic_name: str = conf("msgTraceTopicName", TRACE_TOPIC)

    # Limits; the keys are Twinlog's own. What is refused says which key did it, and twinlog_broker_refused counts it.
    topic_queues_max: int = conf("maxTopicQueueNums", 16_384, minimum=1, maximum=TOPIC_QUEUES_MAX, updatable=True)
    auto_topics_max: int = conf("maxAutoCreatedTopics", 10_000, minimum=0, updatable=True)  # since the start
    auto_groups_max: int = conf("maxAutoCreatedGroups", 10_000, minimum=0, updatable=True)  # since the start
    client_id_length_max: int = conf("maxClientIdLength", 1_024, minimum=64, updatable=True)
    client_groups_max: int = conf("maxGroupsPerClient", 4_096, minimum=1, updatable=True)  # on one connection
    group_subscriptions_max: int = conf("maxSubscriptionsPerGroup", 10_000, minimum=1, updatable=True)
    subscription_length_max: int = conf("maxSubscriptionLengthPerGroup", 4 << 20, minimum=1, updatable=True)
    send_back_bytes_per_s: int = conf(
        "maxSendBackBytesPerSecond", 8 << 20, minimum=0, updatable=True
    )  # per host; 0: any
    holds_per_connection_max: int = conf("maxHeldPullsPerConnection", 16_384, minimum=0, updatable=True)
    holds_max: int = conf("maxHeldPulls", 65_536, minimum=0, updatable=True)  # each takes about 2 KB

    # Sending
    send_accepted_from_ms: int = conf("startAcceptSendRequestTimeStamp", 0, bits=64, updatable=True)
    reply_messages_stored: bool = conf("storeReplyMessageEnable", True, updatable=True)
    recalls_allowed: bool = conf("recallMessageEnable", False, updatable=True)

    # Consuming
    replica_reads: bool = conf("slaveReadEnable", True, updatable=True)  # Java: false
    long_polling: bool = conf("longPollingEnable", True, updatable=True)
    short_polling_ms: int = conf("shortPollingTimeMills", 1_000, bits=64, minimum=0, updatable=True)
    client_expiry_ms: int = conf("channelExpiredTimeout", 120_000, bits=64, minimum=1)
    resets_on_server: bool = conf("useServerSideResetOffset", True, updatable=True)

    # Filters
    property_filter: bool = conf("enablePropertyFilter", False, updatable=True)
    filter_bitmap: bool = conf("enableCalcFilterBitMap", False)
    filter_groups_expected: int = conf("expectConsumerNumUseFilter", 32, minimum=1)
    filter_error_percent: int = conf("maxErrorRateOfBloomFilter", 20, minimum=1, maximum=99)
    filter_expiry_ms: int = conf("filterDataCleanTimeSpan", 24 * 3600 * 1000, bits=64, minimum=1)

    # Transactions
    transactions_rejected: bool = conf("rejectTransactionMessage", False, updatable=True)
    transaction_timeout_ms: int = conf("transactionTimeOut", 6_000, bits=64, minimum=0, updatable=True)
    transaction_check_interval_ms: int = conf("transactionCheckInterval", 30_000, bits=64, minimum=100, updatable=True)
    transaction_checks_max: int = conf("transactionCheckMax", 15, minimum=0, updatable=True)

    # Metadata files and their versions
    offset_flush_interval_ms: int = conf("flushConsumerOffsetInterval", 5_000, minimum=1)
    offset_version_step: int = conf("consumerOffsetUpdateVersionStep", 500, bits=64, minimum=1)
    delay_offset_version_step: int = conf("delayOffsetUpdateVersionStep", 200, bits=64, minimum=1)
    metadata_split: bool = conf("enableSplitMetadata", True, updatable=True)
    metadata_split_rows: int = conf("splitMetadataSize", 2_000, minimum=1, updatable=True)

    @property
    def is_replica(self) -> bool:
        return self.broker_role == "SLAVE"

    @property
    def address(self) -> str:
        """Where clients reach the broker, as it registers itself."""
        return java_address_text(self.broker_ip1, self.listen_port)
