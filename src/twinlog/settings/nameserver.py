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

    listen_port: int = conf("listenPort", 9876, minimum=0, maximum=65535)
    bind_address: str = conf("bindAddress", "0.0.0.0", check=check_bind_address)
    metrics_port: int | None = conf("metricsPort", None, minimum=0, maximum=65535)  # Twinlog's own; None: no metrics
    kv_path: str = conf("kvConfigPath", factory=lambda: os.path.expanduser("~/namesrv/kvConfig.json"))
    config_path: str = conf("configStorePath", factory=lambda: os.path.expanduser("~/namesrv/namesrv.properties"))
    scan_interval_ms: int = conf("scanNotActiveBrokerInterval", 5_000, bits=64, minimum=10, updatable=True)
    order_topics_in_routes: bool = conf("orderMessageEnable", False, updatable=True)
    order_topics_to_brokers: bool = conf("returnOrderTopicConfigToBroker", True, updatable=True)
    acting_masters: bool = conf("supportActingMaster", False, updatable=True)
    notify_min_broker_id: bool = conf("notifyMinBrokerIdChanged", False, updatable=True)
    registrations_are_complete: bool = conf("deleteTopicWithBrokerRegistration", False, updatable=True)
    all_topics_listed: bool = conf("enableAllTopicList", True, updatable=True)
    topics_listed: bool = conf("enableTopicList", True, updatable=True)
    waits_for_service: bool = conf("needWaitForService", False, updatable=True)
    wait_seconds: int = conf("waitSecondsForService", 45, minimum=0, updatable=True)
    # Limits; the keys are Twinlog's own. What is refused says which key did it, and twinlog_namesrv_refused counts it.
    topic_queues_max: int = conf("maxTopicQueueNums", TOPIC_QUEUES_MAX, minimum=1, updatable=True)
    route_topics_max: int = conf("maxRouteTopics", 2_000_000, minimum=1, updatable=True)  # of all brokers
    kv_length_max: int = conf("maxKvLength", 64 * 1024, minimum=1, updatable=True)  # namespace, key and value
    kv_table_length_max: int = conf("maxKvTableLength", 8 * 1024 * 1024, minimum=1, updatable=True)
    black_list: str = conf("configBlackList", "configBlackList;configStorePath;kvConfigPath")

    @property
    def refused_keys(self) -> frozenset[str]:
        """Keys that a remote update must not touch, whatever the operator wrote into the list."""
        return frozenset(key.strip() for key in self.black_list.split(";") if key.strip()) | {"rocketmqHome"}
