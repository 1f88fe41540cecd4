"""Which damaged place is tried next: one at a time, with growing pauses."""

from twinlog.replication.repair_queue import PAUSE_MS_MAX, PLACES_MAX, TWIN_PAUSE_MS_MAX, RepairQueue


def test_a_place_is_tried_at_once_and_only_once_while_it_is_known():
    queue = RepairQueue()
    assert queue.wait_ms(0) is None and queue.next_place(0) is None
    assert queue.add(500, 0) and not queue.add(500, 0)
    assert queue.next_place(0) == 500 and queue.wait_ms(0) == 0
    queue.done(500)
    assert not len(queue) and queue.next_place(0) is None
    assert queue.add(500, 0), "damaged again"


def test_a_place_that_the_twin_cannot_mend_waits_longer_each_time_and_lets_others_go_first():
    queue, now = RepairQueue(), 0
    queue.add(1, now)
    pauses = []
    for _ in range(12):
        assert queue.next_place(now) == 1
        pauses.append(queue.failed(1, now))
        assert queue.next_place(now) is None and queue.wait_ms(now) == pauses[-1]
        queue.add(2, now)
        assert queue.next_place(now) == 2
        queue.done(2)
        now += pauses[-1]
    assert pauses[:4] == [1000, 2000, 4000, 8000] and pauses[-1] == PAUSE_MS_MAX
    assert queue.failed(77, now) == 0, "of a place that is mended by now"


def test_a_twin_that_does_not_answer_makes_all_places_wait():
    queue, now = RepairQueue(), 0
    for place in range(5):
        queue.add(place, now)
    pauses = []
    for _ in range(10):
        assert queue.next_place(now) is not None
        pauses.append(queue.twin_failed(now))
        assert queue.next_place(now + pauses[-1] - 1) is None and queue.wait_ms(now) == pauses[-1]
        now += pauses[-1]
    assert pauses[:3] == [1000, 2000, 4000] and pauses[-1] == TWIN_PAUSE_MS_MAX
    queue.done(0)
    assert queue.twin_failed(now) == 1000, "it has answered in between"


def test_a_bad_disk_fills_the_queue_up_to_its_limit():
    queue = RepairQueue()
    assert sum(queue.add(place, 0) for place in range(PLACES_MAX + 500)) == PLACES_MAX == len(queue)
    queue.done(7)
    assert queue.add(PLACES_MAX + 1, 0)
