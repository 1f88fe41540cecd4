"""A twin's record is written only if it is the record of that place, byte for byte."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.store_at import SEGMENT, draft, fill, open_store

from twinlog.replication.twin_record import (
    RECORDS_MAX,
    AskTwin,
    FindUnit,
    NotMended,
    OwnLog,
    ReadOwn,
    TwinLacks,
    examine,
    pack_place,
)
from twinlog.store.log.checked_log import is_whole
from twinlog.store.recovery.quarantine import encode_filler
from twinlog.wire.message import decode_message
from twinlog.wire.record_layout import SIZE_AND_MAGIC

COUNT = 200  # over several segments


def log_of(path, **settings):
    """(the bytes of a log, the places of its records)."""
    with open_store(path, settings=settings) as store:
        places = [(one.physical_offset, one.size) for one in fill(store, COUNT)]
        data = b"".join(bytes(segment.view(0, SEGMENT)) for segment in store.commit_log.segments)
        return data[: store.log_end], places


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return log_of(tmp_path_factory.mktemp("log"))


@pytest.fixture(scope="module")
def without_crc(tmp_path_factory):
    return log_of(tmp_path_factory.mktemp("plain"), property_crc_enabled=False)


def flipped(data, *bits):
    found = bytearray(data)
    for bit in bits:
        found[bit // 8] ^= 1 << bit % 8
    return bytes(found)


def run(place, ours, theirs, *, is_linked=False, unit=None, asked=None):
    """What `examine` returns with these two logs; `asked` collects its questions."""
    steps = examine(place, OwnLog(0, len(ours), SEGMENT), is_linked=is_linked)
    try:
        step = next(steps)
        while True:
            if asked is not None:
                asked.append(step)
            match step:
                case AskTwin(at):
                    answer = record_at(theirs, at)
                case ReadOwn(at, size):
                    answer = ours[at : at + size]
                case FindUnit():
                    answer = unit
            step = steps.send(answer)
    except StopIteration as found:
        return found.value


def record_at(data, at):
    """As a broker answers: by the size that the record has, if that is possible."""
    size = SIZE_AND_MAGIC.unpack_from(data, at)[0] if at + 8 <= len(data) else 0
    return data[at : at + size] if 0 < size <= min(SEGMENT, len(data) - at) else None


def mended(ours, mends):
    found = bytearray(ours)
    for one in mends:
        assert found[one.physical_offset : one.physical_offset + len(one.record)] == one.damaged
        found[one.physical_offset : one.physical_offset + len(one.record)] = one.record
    return bytes(found)


@given(data=st.data())
def test_every_flipped_bit_is_mended_and_nothing_else_changes(written, data):
    log, places = written
    at, size = data.draw(st.sampled_from(places[:-1]))
    bit = data.draw(st.integers(at * 8, (at + size) * 8 - 1))
    ours = flipped(log, bit)
    assert not is_whole(memoryview(ours)[at : at + size])
    assert mended(ours, run(at, ours, log)) == log


@given(data=st.data())
def test_whatever_is_damaged_on_either_side_no_wrong_byte_is_written(written, data):
    """Both logs have damage, also in one record; what is mended is right, and the rest stays."""
    log, places = written
    bits = st.lists(st.integers(0, len(log) * 8 - 1), max_size=12)
    near = data.draw(st.integers(0, len(places) - 1))
    at, size = places[near]
    mine = st.integers(at * 8, min(len(log), at + 5 * size) * 8 - 1)
    ours = flipped(log, *data.draw(st.lists(mine, min_size=1, max_size=8)))
    theirs = flipped(log, *data.draw(bits), *data.draw(st.lists(mine, max_size=2)))
    try:
        mends = run(at, ours, theirs, is_linked=data.draw(st.booleans()))
    except NotMended:
        return
    for one in mends:
        assert log[one.physical_offset : one.physical_offset + len(one.record)] == one.record


def test_a_bad_page_is_mended_as_a_whole(written):
    log, places = written
    at = places[3][0]
    ours = log[:at] + bytes(4096) + log[at + 4096 :]
    mends = run(at, ours, log)
    assert mended(ours, mends) == log and len(mends) > 10


def test_a_record_at_the_end_of_a_segment_is_proven_by_the_next_segment(written):
    log, places = written
    at, size = max(place for place in places if place[0] < SEGMENT)
    assert at + size < SEGMENT, "a blank record follows"
    ours, asked = flipped(log, (at + size - 5) * 8), []
    assert mended(ours, run(at, ours, log, asked=asked)) == log
    assert AskTwin(SEGMENT) in asked


def test_the_checksum_that_is_left_is_proof_enough(written):
    """The twin has damage of its own beside the place."""
    log, places = written
    (at, size), (behind, _) = places[5], places[6]
    asked = []
    in_body = flipped(log, at * 8 + 700)
    theirs = flipped(log, behind * 8 + 700)
    assert mended(in_body, run(at, in_body, theirs, asked=asked)) == log
    assert [one for one in asked if isinstance(one, AskTwin)] == [AskTwin(at)]
    in_checksum = flipped(log, (at + size - 5) * 8)
    with pytest.raises(TwinLacks, match=f"the twin's record at {behind} is damaged"):
        run(at, in_checksum, theirs)


def test_the_last_record_is_mended_only_from_a_twin_that_is_known_to_hold_the_log(written):
    log, places = written
    at, size = places[-1]
    in_body, ours = flipped(log, at * 8 + 800), flipped(log, (at + size - 5) * 8)
    assert mended(in_body, run(at, in_body, log)) == log, "its checksum proves it"
    with pytest.raises(NotMended, match="no whole record follows"):
        run(at, ours, log)
    assert mended(ours, run(at, ours, log, is_linked=True)) == log


def test_a_whole_record_is_left_alone_and_nobody_is_asked(written):
    log, places = written
    asked = []
    assert run(places[5][0], log, log, asked=asked) == []
    assert all(isinstance(step, ReadOwn) for step in asked)


def test_a_log_that_branched_off_before_is_not_the_twins(written, tmp_path):
    """Another master stored other messages of the same sizes there: its record is whole, and of this place."""
    log, places = written
    with open_store(tmp_path) as store:
        branch = 120
        fill(store, branch)
        for number in range(branch, COUNT):
            store.append(draft(number + 500, queue_id=number % 2))
        other = b"".join(bytes(segment.view(0, SEGMENT)) for segment in store.commit_log.segments)[: store.log_end]
    at, size = places[150]
    assert is_whole(memoryview(other)[at : at + size]) and decode_message(other[at : at + size]).physical_offset == at
    ours = flipped(log, at * 8 + 700)
    with pytest.raises(NotMended, match="another record at"):
        run(at, ours, other)
    before, _ = places[40]
    ours = flipped(log, before * 8 + 700)
    assert mended(ours, run(before, ours, other)) == log


@pytest.mark.parametrize(("theirs", "reason"), [
    (None, "no record at"),
    (b"", "damaged, too"),
    (b"\0" * 300, "damaged, too"),
])  # fmt: skip
def test_an_answer_that_is_not_a_record_is_not_written(written, theirs, reason):
    log, places = written
    at, _ = places[5]
    steps = examine(at, OwnLog(0, len(log), SEGMENT), is_linked=True)
    ours = flipped(log, at * 8 + 700)
    step = next(steps)
    with pytest.raises(TwinLacks, match=reason):
        while True:
            step = steps.send(theirs if isinstance(step, AskTwin) else ours[step.physical_offset :][: step.size])


def test_a_record_of_another_place_is_not_written(written):
    log, places = written
    at, size = places[5]
    other = places[6]
    ours = flipped(log, at * 8 + 700)
    theirs = log[:at] + log[other[0] : sum(other)] + log[at + size :]
    with pytest.raises(NotMended, match="not its place"):
        run(at, ours, theirs, is_linked=True)


def test_a_filler_of_the_twins_recovery_is_not_written(written):
    log, places = written
    at, size = places[5]
    theirs = log[:at] + encode_filler(at, size, 1) + log[at + size :]
    with pytest.raises(TwinLacks, match="has lost its record"):
        run(at, flipped(log, at * 8 + 700), theirs, is_linked=True)


def test_the_queue_here_must_have_the_message_at_this_place(written):
    log, places = written
    at, size = places[5]
    ours = flipped(log, at * 8 + 700)
    assert len(run(at, ours, log, unit=pack_place(at, size))) == 1
    with pytest.raises(NotMended, match=r"TopicA/1/2 at .* another place"):
        run(at, ours, log, unit=pack_place(at + size, size))


def test_of_records_without_a_checksum_only_bodies_are_mended(without_crc):
    log, places = without_crc
    at, size = places[5]
    body_at = log.index(b"body 5", at)
    in_body, in_properties = flipped(log, body_at * 8), flipped(log, (at + size - 3) * 8)
    assert mended(in_body, run(at, in_body, log)) == log
    both = flipped(log, body_at * 8, (at + size - 3) * 8)
    for ours, theirs in ((in_body, in_properties), (both, log)):
        with pytest.raises(NotMended, match="which one is right is not known"):
            run(at, ours, theirs)


def test_places_outside_of_the_log_and_too_much_damage_are_left_to_an_operator(written):
    log, places = written
    for place in (-1, len(log), len(log) - 10):
        with pytest.raises(NotMended, match="its queue unit is damaged"):
            run(place, log, log)
    bits = [(at + size - 5) * 8 for at, size in itertools.islice(places, RECORDS_MAX + 2)]
    with pytest.raises(NotMended, match="damaged records follow"):
        run(places[0][0], flipped(log, *bits), log)
