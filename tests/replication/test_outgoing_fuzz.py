"""A short run of the outgoing fuzz; `python -m tools.fuzz --target outgoing` runs it for as long as you like."""

from tools.fuzz import outgoing


def test_spoiled_answers_break_nothing_and_all_goes_on_when_the_peers_are_sane():
    assert outgoing.fuzz(range(1, 25)) == "24 seeds"
