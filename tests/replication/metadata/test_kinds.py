"""The table of kinds: one spelling, the right table and the right file for each."""

import pytest

from twinlog.metadata.tables import open_tables
from twinlog.replication.metadata.kinds import KINDS, find_kind, table_of


def test_every_kind_is_one_table_and_its_file(tmp_path):
    tables = open_tables(tmp_path, 0)
    assert [table_of(tables, kind.name).file.path.name for kind in KINDS] == [kind.file_name for kind in KINDS]
    assert len({id(kind.table(tables)) for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize(
    "text, name",
    [
        ("topics", "topics"),
        ("topic", "topics"),
        ("group", "groups"),
        ("consumerOffset", "offsets"),
        ("delayOffset", "delayOffsets"),
        ("requestModes", "requestModes"),
    ],
)
def test_both_spellings_mean_the_same_kind(text, name):
    assert find_kind(text).name == name


def test_an_unknown_word_is_not_a_kind():
    assert find_kind("toppics") is None
