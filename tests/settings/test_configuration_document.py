"""docs/configuration.md has every key, as the settings classes describe it."""

import pytest
from tools.make_configuration import FILES, PATH, document, rows

from twinlog.settings.broker_conf import PARTS
from twinlog.settings.conf import keyed_fields
from twinlog.settings.nameserver import NameServerSettings

CLASSES = [cls for classes in FILES.values() for cls in classes.values()]


def test_the_document_is_what_the_tool_makes():
    assert PATH.read_text() == document(), "run `python -m tools.make_configuration`"


def test_every_class_of_both_files_is_in_the_document():
    assert set(CLASSES) == {*PARTS, NameServerSettings}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_key_has_a_meaning(cls):
    described = {row.key.name: row.meaning for row in rows(cls)}
    assert list(described) == [key.name for _, key, _ in keyed_fields(cls)]
    assert all(meaning.endswith(".") for meaning in described.values())
