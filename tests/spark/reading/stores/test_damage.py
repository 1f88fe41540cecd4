"""Damage in topics that are not read is no obstacle; in those that are, or where nobody knows, it is an error."""

import json
import shutil

import pytest
from tests.spark.reading.stores.test_batch_reader import reader, rows
from tests.store.store_at import SEGMENT, draft, open_store, write_log

from twinlog.spark.errors import BadRecord, DataLoss
from twinlog.spark.reading.stores.log_ranges import list_segments

TOPICS = ("A", "B", "C")
BODY_BYTES = 402  # of the first records
FIELDS = [0, 4, 28, 88]  # size, magic, physical offset, body


@pytest.fixture
def stored(tmp_path):
    """Three topics by turns, some 500 bytes a record, over several segments; where each record is."""
    with open_store(tmp_path) as store:
        places = {}
        for number in range(90):
            topic = TOPICS[number % 3]
            one = draft(number, topic, queue_id=number % 2)
            one.body = b"%d " % number + b"x" * 400
            place = store.append(one)
            places[number] = (topic, place.physical_offset, place.size)
        store.dispatch_pending()
    return tmp_path, places


def numbers(path, **more):
    return sorted(int(row["body"].split()[0]) for row in rows(reader(path / "store", **more)))


def of(*topics):
    return [number for number in range(90) if TOPICS[number % 3] in topics]


@pytest.mark.parametrize("split", [1024, SEGMENT])
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("number", [2, 5, 29, 32])
def test_a_damaged_record_of_another_topic_is_not_an_error(stored, caplog, split, field, number):
    path, places = stored
    _, place, size = places[number]
    write_log(path, place + field, b"\xff")
    assert numbers(path, topic="A,B", splitBytes=split) == of("A", "B")
    assert "a damaged place of another topic is left out" in caplog.text and "C" in caplog.text
    told = rf"physical offset {place} to {place + size}: .*topic C queue {number % 2}.*--option failOnDataLoss=false"
    with pytest.raises(BadRecord, match=told):
        numbers(path, topic="B,C", splitBytes=split)
    with pytest.raises(BadRecord, match="failOnDataLoss=false"):
        numbers(path, splitBytes=split)
    assert numbers(path, topic="C", failOnDataLoss="false") == [n for n in of("C") if n != number]


def test_only_the_queues_that_are_read_count(stored):
    path, places = stored
    write_log(path, places[2][1] + 4, b"\xff")  # topic C, queue 0
    other = '{"C":{"broker-x":[1]}}'
    assert numbers(path, brokerName="broker-x", assign=other) == [n for n in of("C") if n % 2]
    with pytest.raises(BadRecord, match="topic C queue 0"):
        numbers(path, brokerName="broker-x", assign='{"C":{"broker-x":[0]}}')


@pytest.mark.parametrize("split", [1024, 1500, SEGMENT])
def test_damage_over_many_records_counts_for_each_of_their_topics(stored, split):
    path, places = stored
    begin, end = places[2][1], places[5][1] + 8  # C, A, B, and the head of the next C
    write_log(path, begin, b"\xff" * (end - begin))
    for topic in TOPICS:
        with pytest.raises(BadRecord, match=rf"offset {begin} to {places[6][1]}: .*topic {topic} queue"):
            numbers(path, topic=topic, splitBytes=split)
    assert numbers(path, topic="A", splitBytes=split, failOnDataLoss="false") == [n for n in of("A") if n != 3]


def test_damage_before_the_blank_end_of_a_segment_has_an_owner_too(stored):
    path, places = stored
    last = max(number for number, (_, place, _) in places.items() if place < SEGMENT)
    topic, place, _ = places[last]
    write_log(path, place + 4, b"\xff")
    others = [one for one in TOPICS if one != topic]
    assert numbers(path, topic=",".join(others)) == of(*others)
    with pytest.raises(BadRecord, match=f"topic {topic} queue"):
        numbers(path, topic=topic)


def test_damage_that_no_queue_refers_to_is_an_error_that_says_how_to_continue(stored):
    path, places = stored
    _, place, size = places[2]
    shutil.rmtree(path / "store" / "consumequeue")
    know_topics(path, *TOPICS)
    write_log(path, place + 88, b"\xff")  # only the body: the record still tells its topic
    assert numbers(path, topic="A") == of("A")
    write_log(path, place + 4, b"\xff")
    told = rf"offset {place} to {place + size}: .*no consume queue refers to it.*--option failOnDataLoss=false"
    with pytest.raises(BadRecord, match=told):
        numbers(path, topic="A")
    assert numbers(path, topic="A", failOnDataLoss="false") == of("A")


@pytest.mark.parametrize("known", [(), TOPICS])
def test_a_topic_that_the_store_does_not_know_is_not_believed(stored, known):
    path, places = stored
    _, place, size = places[2]
    know_topics(path, *known)
    write_log(path, place + 88 + BODY_BYTES - 1, b"\xff\x01Z")  # the end of the body, and the topic behind it
    with pytest.raises(BadRecord, match="topic C queue 0"):  # as its queue says
        numbers(path, topic="C")
    assert numbers(path, topic="A") == of("A")
    shutil.rmtree(path / "store" / "consumequeue")
    told = rf"offset {place} to {place + size}: .*no consume queue refers to it"
    for topic in TOPICS:
        with pytest.raises(BadRecord, match=told):
            numbers(path, topic=topic)


def know_topics(path, *names):
    place = path / "store" / "config"
    place.mkdir(exist_ok=True)
    table = {"topicConfigTable": {name: {"topicName": name} for name in names}}
    (place / "topics.json").write_text(json.dumps(table))


def test_a_queue_that_ends_before_the_damage_is_not_believed(stored):
    """As in a live store, whose broker holds the newest units in memory."""
    path, places = stored
    write_log(path, places[86][1] + 4, b"\xff")
    for queue in (path / "store" / "consumequeue" / "C").glob("*/*"):
        queue.write_bytes(queue.read_bytes()[:20].ljust(2000, b"\0"))
    with pytest.raises(BadRecord, match="no consume queue refers to it"):
        numbers(path, topic="A")


@pytest.mark.parametrize("split", [1024, 1500, SEGMENT])
@pytest.mark.parametrize("back", [0, 1, 100])
def test_an_end_before_the_damage_leaves_it_out(stored, split, back):
    path, places = stored
    _, place, _ = places[5]
    write_log(path, place + 4, b"\xff")
    ends = {"brokerName": "broker-x", "splitBytes": split}
    assert numbers(path, endingOffsets=json.dumps({"broker-x": place - back}), **ends) == list(range(5))
    with pytest.raises(BadRecord):
        numbers(path, endingOffsets=json.dumps({"broker-x": place + 1}), **ends)


def test_offsets_outside_the_log_are_a_loss(stored, caplog):
    path, places = stored
    (path / "store" / "commitlog" / f"{0:020d}").unlink()
    left = [number for number, (_, place, _) in places.items() if place >= SEGMENT]
    end = places[89][1] + places[89][2]
    for given, told in (({"startingOffsets": 1}, f"the log begins at {SEGMENT}"), ({"endingOffsets": end + 1}, "ends")):
        more = {"brokerName": "broker-x", **{key: json.dumps({"broker-x": at}) for key, at in given.items()}}
        with pytest.raises(DataLoss, match=told):
            numbers(path, **more)
        assert numbers(path, failOnDataLoss="false", **more) == left
    more = {"startingOffsets": '{"broker-x":0}', "endingOffsets": json.dumps({"broker-x": end})}
    assert numbers(path, brokerName="broker-x", **more) == left


def test_a_segment_that_its_broker_deletes_meanwhile_has_no_time(stored):
    path, _ = stored
    one = reader(path / "store", startingTimestamp=1)
    segments = list_segments([path / "store" / "commitlog"], path / "store")
    segments[0].path.unlink()
    assert one._options.selection.in_time(segments) == segments
