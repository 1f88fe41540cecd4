"""Permissions of topics as Java shows them."""

import pytest

from twinlog.wire.values.topic_bits import permission_text


@pytest.mark.parametrize(("perm", "text"), [(7, "RWX"), (6, "RW-"), (4, "R--"), (2, "-W-"), (1, "--X"), (0, "---")])
def test_a_permission_is_shown_by_its_letters(perm: int, text: str):
    assert permission_text(perm) == text
