"""Moving a group at a broker that does not do it itself, as RocketMQ 4: offsets of offline groups are committed."""

import pytest

from twinlog.client import BadArgument, ConsumerOptions, MessageQueue, StartFrom
from twinlog.wire.bodies import SubscriptionGroupConfig

OLD = {"useServerSideResetOffset": "false"}  # then a broker answers as Java 4.9 does


def offsets(broker):
    found = broker.admin.consume_stats("billing", "Orders")[0]
    return {queue.queue_id: row.consumer_offset for queue, row in found.items()}


@pytest.fixture
def broker(twinlog_broker_factory):
    broker = twinlog_broker_factory(settings=OLD)
    broker.seed("Orders", [b"%d" % number for number in range(8)], queues=2)
    broker.admin.save_group(broker.address, SubscriptionGroupConfig(group_name="billing"))
    return broker


def test_an_offline_group_is_moved_in_all_queues_or_in_one(broker):
    """Seen to fail: the group has no member online; and a request for one queue would have moved all."""
    queues = [MessageQueue("Orders", broker.master.name, number) for number in (0, 1)]
    with pytest.raises(BadArgument, match="has no queue 7 of topic 'Orders'"):
        broker.admin.reset_offset("Orders", "billing", 0, address=broker.address, queue_id=7, offset=1)
    assert broker.admin.reset_offset("Orders", "billing", -1) == dict.fromkeys(queues, 4), "it had no offsets"
    one = {"address": broker.address, "queue_id": 1}
    assert broker.admin.reset_offset("Orders", "billing", 0, **one, offset=3) == {queues[1]: 3}
    assert offsets(broker) == {0: 4, 1: 3}
    with pytest.raises(BadArgument, match="offset 5 is not in queue 1, which has 0 to 4"):
        broker.admin.reset_offset("Orders", "billing", 0, **one, offset=5)
    broker.admin.reset_offset("Orders", "billing", 0)
    assert offsets(broker) == {0: 0, 1: 0}
    broker.admin.reset_offset("Orders", "billing", -1, force=False)
    assert offsets(broker) == {0: 0, 1: 0}, "without force it only goes back"


def test_one_queue_of_a_group_with_consumers_is_not_moved_as_all_would_be(broker):
    quick = ConsumerOptions(start_from=StartFrom.FIRST, commit_ms=100)
    broker.push_consumer("billing", "Orders", lambda message: None, consumer_options=quick)
    broker.wait_for(lambda: offsets(broker) == {0: 4, 1: 4}, 60)
    with pytest.raises(BadArgument, match="cannot move one queue of a group with connected consumers"):
        broker.admin.reset_offset("Orders", "billing", 0, address=broker.address, queue_id=1, offset=3)
    assert set(broker.admin.reset_offset("Orders", "billing", 0).values()) == {0}, "all queues, by its consumers"
