"""Makes a group that only commits offsets visible to operators.

`mqadmin consumerProgress` finds the brokers of a group by the route of its retry topic, which brokers create when a
consumer of the group connects. A stream does not connect as one: it would take queues from real consumers.
"""

from __future__ import annotations

from collections.abc import Iterable

from twinlog.base.system_names import retry_topic
from twinlog.client.errors import ClientError, NoRoute
from twinlog.client.options import ClientOptions
from twinlog.client.sync import Admin
from twinlog.net.errors import NetError
from twinlog.spark.cluster import Cluster
from twinlog.spark.cluster_options import ClusterOptions, tls_of
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import MessageQueue, TopicConfig

log = get_logger(__name__)


def show_group(options: ClusterOptions, group: str, queues: Iterable[MessageQueue]) -> None:
    """Create the group's retry topic on the masters of these queues, where it is missing; a failure is a warning."""
    masters, name = Cluster(options), retry_topic(group)
    try:
        try:
            have = {queue.broker_name for queue in masters.queues([name])}
        except NoRoute:
            have = set()
        wanted = {queue.broker_name: queue for queue in queues if queue.broker_name not in have}
        if not wanted:
            return
        client = ClientOptions(credentials=options.credentials, tls=tls_of(options))
        with Admin(";".join(options.name_servers), options=client, timeout_ms=options.request_timeout_ms) as admin:
            for queue in wanted.values():
                config = TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1)
                admin.save_topic(masters.address_of(queue), config)
    except (NetError, ClientError) as error:
        log.warning("mqadmin does not show the progress of a group without retry topic", group=group, error=str(error))
