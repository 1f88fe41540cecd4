"""A table is gathered from pages, from one answer, and again from the start when its version changes."""

import json

import pytest

from twinlog.metadata.errors import BrokenSnapshot
from twinlog.metadata.tables import open_tables
from twinlog.replication.metadata import table_pages
from twinlog.replication.metadata.kinds import GROUPS, OFFSETS, TOPICS
from twinlog.replication.metadata.table_pages import TablePages, decode_answer

TABLES = open_tables(None, 0)


def topics(names: str, counter: int = 1):
    rows = {name: {"topicName": name} for name in names}
    body = json.dumps({"dataVersion": {"counter": counter}, "topicConfigTable": rows}).encode()
    return decode_answer(TOPICS, TABLES.topics, body)


def total(number: int) -> dict[str, str]:
    return {"totalTopicNum": str(number)}


def test_pages_are_asked_for_until_all_rows_are_there(monkeypatch):
    monkeypatch.setattr(table_pages, "PAGE_ROWS", 2)
    pages = TablePages(TOPICS)
    assert pages.fields() == {"topicSeq": "0", "maxTopicNum": "2", "dataVersion": ""}
    assert not pages.take(topics("AB"), total(3))
    fields = pages.fields()
    assert (fields["topicSeq"], json.loads(fields["dataVersion"])["counter"]) == ("2", 1)
    assert pages.take(topics("C"), total(3))
    assert set(pages.table.topic_config_table) == {"A", "B", "C"}


def test_an_answer_without_a_total_is_the_whole_table():
    pages = TablePages(TOPICS)
    assert pages.take(topics("AB"), None) and set(pages.table.topic_config_table) == {"A", "B"}
    assert TablePages(OFFSETS).fields() is None


def test_a_new_version_between_two_pages_starts_from_its_first_page():
    pages = TablePages(TOPICS)
    assert not pages.take(topics("AB"), total(3))
    assert not pages.take(topics("XY", counter=2), total(3))
    assert pages.fields()["topicSeq"] == "2"
    assert pages.take(topics("Z", counter=2), total(3))
    assert set(pages.table.topic_config_table) == {"X", "Y", "Z"}


def test_forbidden_topics_of_every_page_are_kept():
    def page(name):
        body = {"dataVersion": {}, "forbiddenTable": {name: {"T": 4}}, "subscriptionGroupTable": {name: {}}}
        return decode_answer(GROUPS, TABLES.groups, json.dumps(body).encode())

    pages = TablePages(GROUPS)
    assert not pages.take(page("G"), {"totalGroupNum": "2"})
    assert pages.take(page("H"), {"totalGroupNum": "2"})
    assert pages.table.forbidden_table == {"G": {"T": 4}, "H": {"T": 4}}


def test_a_page_without_new_rows_ends_the_gathering():
    pages = TablePages(TOPICS)
    assert not pages.take(topics("AB"), total(3))
    with pytest.raises(BrokenSnapshot, match="of 3 rows only 2 came"):
        pages.take(topics("AB"), total(3))


def test_a_version_that_keeps_changing_ends_the_gathering(monkeypatch):
    monkeypatch.setattr(table_pages, "PAGES_MAX", 3)
    pages = TablePages(TOPICS)
    assert not pages.take(topics("A", 1), total(2)) and not pages.take(topics("A", 2), total(2))
    with pytest.raises(BrokenSnapshot, match="kept changing"):
        pages.take(topics("A", 3), total(2))


@pytest.mark.parametrize("body", [None, b"{", b"[]", b'{"topicConfigTable":5}'])
def test_an_answer_that_is_not_the_table_is_refused(body):
    with pytest.raises(BrokenSnapshot, match="topics"):
        decode_answer(TOPICS, TABLES.topics, body)
