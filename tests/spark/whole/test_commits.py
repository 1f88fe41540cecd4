"""A group's offsets reach a broker that keeps them as Java does, all of them, or the job fails and names the queue."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.client.routing.routes import TopicRoute
from twinlog.spark.cluster import Cluster
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.errors import CannotRead, OffsetsNotKept
from twinlog.spark.remoting import Response
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.codes import RequestCode, ResponseCode

OPTIONS = ClusterOptions(name_servers=("n:1",))


class RacingBroker:
    """Java's offset table: requests that travel together run at the same time, each sees the table as it was before
    them, and of two that both make the map of a topic and group the later one's map replaces the other's."""

    def __init__(self) -> None:
        self.table: dict[str, dict[int, int]] = {}
        self.loses: tuple[str, int] | None = None

    def answer(self, commands):
        before = set(self.table)
        return [self._one(command, before) for command in commands]

    def _one(self, command, before):
        fields = command.fields
        key, queue = f"{fields['topic']}@{fields['consumerGroup']}", int(fields["queueId"])
        if command.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            entry = {} if (key, queue) == self.loses else {queue: int(fields["commitOffset"])}
            if key in before:
                self.table[key].update(entry)
            else:
                self.table[key] = entry
            return Response(0, ResponseCode.SUCCESS, "", {}, memoryview(b""))
        offset = self.table.get(key, {}).get(queue)
        if offset is None:
            return Response(0, ResponseCode.QUERY_NOT_FOUND, "", {}, memoryview(b""))
        return Response(0, ResponseCode.SUCCESS, "", {"offset": str(offset)}, memoryview(b""))


class RacingCluster(Cluster):
    def __init__(self) -> None:
        super().__init__(OPTIONS)
        self.brokers: dict[str, RacingBroker] = {}

    def address_of(self, queue, **_):
        return f"{queue.broker_name}:1"

    def _ask(self, address, commands):
        return self.brokers.setdefault(address, RacingBroker()).answer(commands)


def test_a_master_that_is_away_names_an_option_only_where_there_is_one():
    queue = MessageQueue("T", "a", 0)
    for choice, told in (
        (None, "no master .*start it"),
        ("master", "readFrom=any"),
        ("slave", "no slave .*readFrom=any"),
    ):
        cluster = Cluster(OPTIONS, choice)
        cluster._routes["T"] = TopicRoute("T", (), (), {"a": {}})
        with pytest.raises(CannotRead, match=told) as raised:
            cluster.address_of(queue)
        assert ("readFrom" in str(raised.value)) == (choice is not None)


queues = st.builds(MessageQueue, st.sampled_from("AB"), st.sampled_from(("a", "b")), st.integers(0, 20))


@given(st.dictionaries(queues, st.integers(0, 1000), min_size=1))
def test_first_commits_of_a_new_group_are_all_kept_by_a_broker_that_races(offsets):
    cluster = RacingCluster()
    cluster.commit("g", offsets)
    assert cluster.committed("g", offsets) == offsets
    later = {queue: at + 1 for queue, at in offsets.items()}
    cluster.commit("g", later)
    assert cluster.committed("g", offsets) == later


def test_an_offset_that_the_broker_does_not_hold_afterwards_is_an_error_that_names_it():
    cluster = RacingCluster()
    cluster.brokers["a:1"] = broker = RacingBroker()
    places = {MessageQueue("T", "a", number): 10 + number for number in range(8)}
    broker.loses = ("T@g", 5)
    with pytest.raises(OffsetsNotKept, match=r"group g, topic T broker a queue 5: .* 15, .* has none"):
        cluster.commit("g", places)
    broker.table["T@g"][5] = 3
    with pytest.raises(OffsetsNotKept, match=r"queue 5: .* 15, .* has 3"):
        cluster.commit("g", places)
