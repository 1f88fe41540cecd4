"""A torn tail loses the torn record and nothing else: the short form."""

from tests.faults.rows import damage


def test_a_log_cut_anywhere_in_its_last_records_keeps_every_whole_one(tmp_path):
    damage.torn_tails(tmp_path, 1, step=29)
