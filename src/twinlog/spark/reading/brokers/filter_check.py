"""Asks brokers whether they accept an SQL92 filter.

A broker answers a pull with a wrong one as if there were none: with all messages.
"""

from __future__ import annotations

from collections.abc import Iterable

from twinlog.client.consuming.pulling import TAG, subscription_of
from twinlog.client.errors import BrokerRefused
from twinlog.spark.cluster import Cluster
from twinlog.spark.errors import BadOption
from twinlog.spark.reading.brokers.options import ReadOptions
from twinlog.wire.bodies import CheckClientBody, MessageQueue, encode_body
from twinlog.wire.codes import RequestCode
from twinlog.wire.command import Command


def check_filter(options: ReadOptions, cluster: Cluster, queues: Iterable[MessageQueue]) -> None:
    """BadOption if a broker of these queues refuses the filter, or does not filter by SQL92."""
    if options.expression_type == TAG:
        return
    from twinlog.spark.live_broker import LiveBroker  # with all kinds of metadata, which few reads need

    for address, topic in sorted({(cluster.address_of(queue), queue.topic) for queue in queues}):
        subscription = subscription_of(topic, options.expression, options.expression_type)
        body = CheckClientBody(client_id="spark", group=options.pull_group, subscription_data=subscription)
        command = Command(RequestCode.CHECK_CLIENT_CONFIG, body=encode_body(body))
        try:
            LiveBroker(address, options.cluster, options.cluster.request_timeout_ms).ask_all([command])
        except BrokerRefused as error:
            raise BadOption(f"subExpression {options.expression!r}: {error}") from error
