"""A peer at an older revision gets the difference, and only the difference."""

from hypothesis import given
from hypothesis import strategies as st

from twinlog.metadata.revisions import Revisions


def test_a_key_is_reported_once_at_its_newest_change():
    revisions = Revisions("life-1")
    for key in ("a", "b", "a", "c"):
        revisions.touch(key)
    assert revisions.since("life-1", 1) == (["b", "a", "c"], [])
    assert revisions.since("life-1", 3) == (["c"], [])
    assert revisions.since("life-1", 4) == ([], [])


def test_a_removed_key_is_reported_until_it_returns():
    revisions = Revisions("life-1")
    revisions.touch("a")
    revisions.remove("a")
    assert revisions.since("life-1", 1) == ([], ["a"])
    revisions.touch("a")
    assert revisions.since("life-1", 1) == (["a"], [])


def test_another_epoch_or_a_revision_from_the_future_gets_no_difference():
    revisions = Revisions("life-2")
    revisions.touch("a")
    assert revisions.since("life-1", 1) is None
    assert revisions.since("life-2", 2) is None
    assert revisions.since("life-2", -1) is None


def test_two_lives_have_different_epochs():
    assert Revisions().epoch != Revisions().epoch


def test_forgotten_tombstones_send_an_old_peer_to_the_whole_table():
    revisions = Revisions("life-1", tombstones_max=4)
    for number in range(5):
        revisions.remove(f"t{number}")
    assert revisions.since("life-1", 1) is None
    assert revisions.since("life-1", 2) == ([], ["t2", "t3", "t4"])


def test_changes_of_other_keys_do_not_touch_a_set():
    revisions = Revisions(tombstones_max=4)
    for key in ("a", "b"):
        revisions.touch(key)
    seen = revisions.current
    revisions.touch("c")
    revisions.remove("b")
    assert not revisions.touched({"a"}, seen)
    assert revisions.touched({"a", "b"}, seen)
    assert revisions.touched({"c"}, seen)
    for number in range(6):  # the tombstones since then are not all there any more
        revisions.remove(f"t{number}")
    assert revisions.touched({"a"}, seen)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abcde")), max_size=60), st.data())
def test_a_peer_that_applies_differences_always_ends_with_the_same_keys(steps, data):
    revisions, rows, peer, peer_revision = Revisions("x", tombstones_max=3), {}, {}, 0
    for number, (add, key) in enumerate(steps):
        if add:
            rows[key] = number
            revisions.touch(key)
        elif key in rows:
            del rows[key]
            revisions.remove(key)
        if data.draw(st.booleans()):
            difference = revisions.since("x", peer_revision)
            if difference is None:
                peer = dict(rows)
            else:
                peer.update({name: rows[name] for name in difference[0]})
                for name in difference[1]:
                    peer.pop(name, None)
            peer_revision = revisions.current
            assert peer == rows
