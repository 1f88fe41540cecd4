"""Settings of a name server."""

from __future__ import annotations

import os
from dataclasses import dataclass

from twinlog.base.addresses import check_bind_address
from twinlog.settings.broker import TOPIC_QUEUES_MAX
from twinlog.settings.conf import conf


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerSettings:
    """One name server; name servers do not know each other."""

    # -- Network and files

    # Port for brokers and clients. 0: any free port.
    listen_port: int = conf("listenPort", 9876, minimum=0, maximum=65535)
    # Address on which all ports listen.
    bind_address: str = conf("bindAddress", "0.0.0.0", check=check_bind_address)
    # Port that serves Prometheus metrics under /metrics; unset: none.
    metrics_port: int | None = conf("metricsPort", None, minimum=0, maximum=65535)
    # File of the KV configs, such as the order of ordered topics. Default: ~/namesrv/kvConfig.json.
    kv_path: str = conf("kvConfigPath", factory=lambda: os.path.expanduser("~/namesrv/kvConfig.json"))
    # File into which changes at run time are written. Default: the file given with -c, or else
    # ~/namesrv/namesrv.properties.
    config_path: str = conf("configStorePath", factory=lambda: os.path.expanduser("~/namesrv/namesrv.properties"))

    # -- Brokers and routes

    # Milliseconds between two checks for brokers that no longer register.
    scan_interval_ms: int = conf("scanNotActiveBrokerInterval", 5_000, bits=64, minimum=10, updatable=True)
    # Put the KV config of an ordered topic into its route.
    order_topics_in_routes: bool = conf("orderMessageEnable", False, updatable=True)
    # Return the list of ordered topics to a broker that registers.
    order_topics_to_brokers: bool = conf("returnOrderTopicConfigToBroker", True, updatable=True)
    # In the route of a group without a master, show the replica with the smallest id as its master, if the replicas
    # registered with enableActingMaster.
    acting_masters: bool = conf("supportActingMaster", False, updatable=True)
    # Notify brokers when the smallest id of their group changes.
    notify_min_broker_id: bool = conf("notifyMinBrokerIdChanged", False, updatable=True)
    # Remove the topics that a master's registration leaves out.
    registrations_are_complete: bool = conf("deleteTopicWithBrokerRegistration", False, updatable=True)
    # Answer requests for the list of all topics.
    all_topics_listed: bool = conf("enableAllTopicList", True, updatable=True)
    # Answer requests for other lists of topics, such as those of a cluster.
    topics_listed: bool = conf("enableTopicList", True, updatable=True)
    # Refuse requests for routes for waitSecondsForService after the start.
    waits_for_service: bool = conf("needWaitForService", False, updatable=True)
    # Seconds of that wait.
    wait_seconds: int = conf("waitSecondsForService", 45, minimum=0, updatable=True)

    # -- Limits

    # Most queues of a topic; one with more gets no route. See limits.md for this and the next four keys.
    topic_queues_max: int = conf("maxTopicQueueNums", TOPIC_QUEUES_MAX, minimum=1, updatable=True)
    # Most topics of all brokers.
    route_topics_max: int = conf("maxRouteTopics", 2_000_000, minimum=1, updatable=True)
    # Most bytes that a compressed registration decompresses to.
    registration_bytes_max: int = conf("maxDecompressedRegistrationBytes", 64 << 20, minimum=1, updatable=True)
    # Most characters of a KV config: namespace, key and value.
    kv_length_max: int = conf("maxKvLength", 64 * 1024, minimum=1, updatable=True)
    # Most characters of all KV configs.
    kv_table_length_max: int = conf("maxKvTableLength", 8 * 1024 * 1024, minimum=1, updatable=True)

    # -- Changes at run time

    # Keys that no request may change, separated by semicolons.
    black_list: str = conf("configBlackList", "configBlackList;configStorePath;kvConfigPath")

    @property
    def refused_keys(self) -> frozenset[str]:
        """Keys that a remote update must not touch, whatever the operator wrote into the list."""
        return frozenset(key.strip() for key in self.black_list.split(";") if key.strip()) | {"rocketmqHome"}
