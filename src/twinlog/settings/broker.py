"""Who a broker is, and how it treats topics, groups and clients."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Literal

from twinlog.base.addresses import (
    check_addresses,
    check_bind_address,
    check_host,
    java_address_text,
    local_address,
    own_ip_address,
)
from twinlog.base.system_names import TRACE_TOPIC
from twinlog.settings.accounts import account_problem
from twinlog.settings.conf import conf

TOPIC_QUEUES_MAX = 65_536  # of one topic on one broker, whatever a file, a master or a name server has
BrokerRole = Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """One broker, apart from its store and its replication."""

    # -- Identity

    # Cluster that the broker belongs to. A topic of this name is made at the start.
    cluster_name: str = conf("brokerClusterName", "DefaultCluster")
    # Name that a master and its replicas share. A topic of this name is made at the start. Default: the host name.
    broker_name: str = conf("brokerName", factory=lambda: socket.gethostname() or "DEFAULT_BROKER")
    # 0 for the master, a number above 0 of its own for each replica. A master's id is always 0.
    broker_id: int = conf("brokerId", 0, bits=64, minimum=-1, updatable=True)
    # SYNC_MASTER acknowledges a send when replicas hold it (see inSyncReplicas), ASYNC_MASTER at once. SLAVE is a
    # replica.
    broker_role: BrokerRole = conf("brokerRole", "ASYNC_MASTER", updatable=True)
    # Region that is written into each message, as MSG_REGION.
    region_id: str = conf("regionId", "DefaultRegion")

    # -- Network

    # Name servers to register at, host:port;host:port. The variable NAMESRV_ADDR is used when the file has no such key.
    namesrv_addr: str | None = conf("namesrvAddr", None, check=check_addresses, updatable=True)
    # Port for clients and other brokers. Clients may use the port 2 below it too. 0: any free port.
    listen_port: int = conf("listenPort", 10911, minimum=0, maximum=65535)
    # Address on which all ports listen.
    bind_address: str = conf("bindAddress", "0.0.0.0", check=check_bind_address)
    # Host under which clients reach the broker; it is registered. Default: this machine's address.
    broker_ip1: str = conf("brokerIP1", factory=local_address, check=check_host)
    # Host under which replicas reach the master; it is registered. Default: brokerIP1 if given, or else this
    # machine's address.
    broker_ip2: str = conf("brokerIP2", factory=local_address, check=check_host)
    # Account that this broker's own requests are signed with, for a protected master or name server:
    # {"accessKey":"name","secretKey":"secret"}. It is not shown by requests.
    own_account: str | None = conf("innerClientAuthenticationCredentials", None, check=account_problem)
    # Port that serves Prometheus metrics under /metrics, and /master, /replica, /health and /readiness for load
    # balancers; unset: none.
    metrics_port: int | None = conf("metricsPort", None, minimum=0, maximum=65535)

    # -- Registration

    # What clients may do: 2 write, 4 read, 6 both. Topics are registered with no more than this; pulls without 4 are
    # refused. Sends without 2 are refused only for topics in order: other producers avoid the broker by its routes.
    permission: int = conf("brokerPermission", 6, minimum=0, maximum=7, updatable=True)
    # Milliseconds between two registrations at the name servers; used within 10000 to 60000.
    register_interval_ms: int = conf("registerNameServerPeriod", 30_000, updatable=True)
    # Milliseconds that one registration may take.
    register_timeout_ms: int = conf("registerBrokerTimeoutMills", 24_000, minimum=1, updatable=True)
    # false: a master asks a name server first whether it lacks the topics' version, and registers only then.
    register_always: bool = conf("forceRegister", True, updatable=True)
    # Compress the topics in a registration.
    register_compressed: bool = conf("compressedRegister", False, updatable=True)
    # Send many topics in several registrations, each with splitRegistrationSize of them.
    register_split: bool = conf("enableSplitRegistration", False, updatable=True)
    # Topics in one registration when enableSplitRegistration is true.
    register_split_topics: int = conf("splitRegistrationSize", 800, minimum=1, updatable=True)
    # Milliseconds after the start before the broker registers; below 1: at once.
    disappear_ms_after_start: int = conf("disappearTimeAfterStart", -1)

    # -- Topics and groups

    # Create a topic with the first send to it. With false at the first start there is no TBW102, the topic that new
    # ones are copied from: create it before changing this to true.
    topics_auto_created: bool = conf("autoCreateTopicEnable", True, updatable=True)
    # Queues of TBW102 when a store is new, and so most queues of a topic that a send creates; the producer may want
    # fewer. Later, change TBW102 itself.
    default_topic_queues: int = conf("defaultTopicQueueNums", 8, minimum=1, maximum=TOPIC_QUEUES_MAX)
    # Create a consumer group with its first heartbeat, pull or send-back.
    groups_auto_created: bool = conf("autoCreateSubscriptionGroup", True, updatable=True)
    # Whether the topic named as the cluster can be read and written.
    cluster_topic: bool = conf("clusterTopicEnable", True)
    # Whether the topic named as the broker can be read and written.
    broker_topic: bool = conf("brokerTopicEnable", True)
    # Mark each answer and message with TRACE_ON, so that clients write traces.
    trace_on: bool = conf("traceOn", True, updatable=True)
    # Create the topic for traces at the start.
    trace_topic: bool = conf("traceTopicEnable", False)
    # Name of the topic for traces.
    trace_topic_name: str = conf("msgTraceTopicName", TRACE_TOPIC)

    # -- Limits

    # Most read or write queues of a topic. See limits.md for this and the next sixteen keys.
    topic_queues_max: int = conf("maxTopicQueueNums", 16_384, minimum=1, maximum=TOPIC_QUEUES_MAX, updatable=True)
    # Most topics that sends create, counted from the start of the broker.
    auto_topics_max: int = conf("maxAutoCreatedTopics", 10_000, minimum=0, updatable=True)
    # Most groups that clients create, counted from the start of the broker.
    auto_groups_max: int = conf("maxAutoCreatedGroups", 10_000, minimum=0, updatable=True)
    # Most characters of a client id.
    client_id_length_max: int = conf("maxClientIdLength", 1_024, minimum=64, updatable=True)
    # Most groups of one connection.
    client_groups_max: int = conf("maxGroupsPerClient", 4_096, minimum=1, updatable=True)
    # Most topics that a group subscribes to in one heartbeat.
    group_subscriptions_max: int = conf("maxSubscriptionsPerGroup", 10_000, minimum=1, updatable=True)
    # Most characters of all subscriptions of a group in one heartbeat.
    subscription_length_max: int = conf("maxSubscriptionLengthPerGroup", 4 << 20, minimum=1, updatable=True)
    # Most places in groups of all clients: one for each connection and each of its groups.
    registrations_max: int = conf("maxClientRegistrations", 1_000_000, minimum=1, updatable=True)
    # Most characters of all subscriptions of all groups with consumers.
    subscriptions_length_max: int = conf("maxSubscriptionLength", 64 << 20, minimum=1, updatable=True)
    # Most characters of all SQL92 filters; those of groups without consumers are kept too, for filterDataCleanTimeSpan.
    filters_length_max: int = conf("maxFilterLength", 64 << 20, minimum=1, updatable=True)
    # Most queues that consumers of one group lock.
    group_locks_max: int = conf("maxLocksPerGroup", 100_000, minimum=1, updatable=True)
    # Most queues that consumers of all groups lock; each takes about 200 bytes.
    locks_max: int = conf("maxLocks", 1_000_000, minimum=1, updatable=True)
    # Most bytes of messages in the answer to a query by key; clients do not read answers above 16 MiB.
    query_bytes_max: int = conf("maxQueryBytes", 15 << 20, minimum=1, updatable=True)
    # Most entries of a queue in the answer to queryCq.
    query_entries_max: int = conf("maxQueueEntriesPerQuery", 10_000, minimum=1, updatable=True)
    # Most bytes per second of messages that one host sends back; 0: no limit.
    send_back_bytes_per_s: int = conf("maxSendBackBytesPerSecond", 8 << 20, minimum=0, updatable=True)
    # Most pulls of one connection that wait for messages.
    holds_per_connection_max: int = conf("maxHeldPullsPerConnection", 16_384, minimum=0, updatable=True)
    # Most pulls of all connections that wait for messages; each takes about 2 KB.
    holds_max: int = conf("maxHeldPulls", 65_536, minimum=0, updatable=True)

    # -- Sending

    # Time, in milliseconds since 1970, before which sends are refused; 0: none.
    send_accepted_from_ms: int = conf("startAcceptSendRequestTimeStamp", 0, bits=64, updatable=True)
    # Store the answer of a request-reply call as a message too.
    reply_messages_stored: bool = conf("storeReplyMessageEnable", True, updatable=True)
    # Let producers recall a message that waits for its delivery time.
    recalls_allowed: bool = conf("recallMessageEnable", False, updatable=True)

    # -- Consuming

    # A replica answers pulls, and a master sends consumers that are far behind to it. Java's default is false.
    replica_reads: bool = conf("slaveReadEnable", True, updatable=True)
    # true: a pull without messages waits as long as the consumer asks; false: for shortPollingTimeMills.
    long_polling: bool = conf("longPollingEnable", True, updatable=True)
    # Milliseconds that a pull waits when longPollingEnable is false.
    short_polling_ms: int = conf("shortPollingTimeMills", 1_000, bits=64, minimum=0, updatable=True)
    # Milliseconds without a heartbeat after which a client is removed.
    client_expiry_ms: int = conf("channelExpiredTimeout", 120_000, bits=64, minimum=1)
    # true: the broker resets a group's offsets itself; false: it asks the group's clients to.
    resets_on_server: bool = conf("useServerSideResetOffset", True, updatable=True)

    # -- Filters

    # Allow SQL92 expressions in subscriptions.
    property_filter: bool = conf("enablePropertyFilter", False, updatable=True)
    # Note in each queue entry which SQL92 filters match it. Needs enableConsumeQueueExt to be kept.
    filter_bitmap: bool = conf("enableCalcFilterBitMap", False)
    # Groups with SQL92 filters for which the bit maps are sized.
    filter_groups_expected: int = conf("expectConsumerNumUseFilter", 32, minimum=1)
    # Percent of messages that a bit map may match by mistake; they are checked again.
    filter_error_percent: int = conf("maxErrorRateOfBloomFilter", 20, minimum=1, maximum=99)
    # Milliseconds that the SQL92 filter of a group without consumers is kept.
    filter_expiry_ms: int = conf("filterDataCleanTimeSpan", 24 * 3600 * 1000, bits=64, minimum=1)

    # -- Transactions

    # Refuse transactional messages.
    transactions_rejected: bool = conf("rejectTransactionMessage", False, updatable=True)
    # Milliseconds after which the producer of an open transaction is asked for its outcome.
    transaction_timeout_ms: int = conf("transactionTimeOut", 6_000, bits=64, minimum=0, updatable=True)
    # Milliseconds between two rounds of questions about open transactions.
    transaction_check_interval_ms: int = conf("transactionCheckInterval", 30_000, bits=64, minimum=100, updatable=True)
    # Questions about one transaction before it is given up.
    transaction_checks_max: int = conf("transactionCheckMax", 15, minimum=0, updatable=True)

    # -- Metadata files and their versions

    # Milliseconds between two writes of consumer offsets to disk.
    offset_flush_interval_ms: int = conf("flushConsumerOffsetInterval", 5_000, minimum=1)
    # Commits of offsets after which their data version grows by one.
    offset_version_step: int = conf("consumerOffsetUpdateVersionStep", 500, bits=64, minimum=1)
    # Deliveries of delayed messages after which the version of their offsets grows by one.
    delay_offset_version_step: int = conf("delayOffsetUpdateVersionStep", 200, bits=64, minimum=1)
    # Answer requests for all topics or groups in pages, when the replica asks for pages.
    metadata_split: bool = conf("enableSplitMetadata", True, updatable=True)
    # Topics or groups in one page.
    metadata_split_rows: int = conf("splitMetadataSize", 2_000, minimum=1, updatable=True)

    @property
    def is_replica(self) -> bool:
        return self.broker_role == "SLAVE"

    @property
    def record_host(self) -> tuple[str, int]:
        """Where messages are stored, as records and ids have it: brokerIP1 may be a name, which they cannot hold."""
        return own_ip_address(self.broker_ip1), self.listen_port

    @property
    def address(self) -> str:
        """Where clients reach the broker, as it registers itself."""
        return java_address_text(self.broker_ip1, self.listen_port)
