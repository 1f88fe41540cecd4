import dataclasses
import re
from pathlib import Path

import pytest

from twinlog.client import BadArgument, ClientOptions, ConsumerOptions, ProducerOptions, tls_context

PAGE = Path(__file__).parents[2] / "docs" / "client.md"


@pytest.mark.parametrize("options", [ClientOptions, ProducerOptions, ConsumerOptions])
def test_the_page_lists_every_option_with_its_default(options):
    section = PAGE.read_text().partition(f"### {options.__name__}\n")[2].partition("\n##")[0]
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| (.+) \|$", section, re.M)
    made = options()
    assert {name: default for name, default, _ in rows} == {
        field.name: _shown(getattr(made, field.name)) for field in dataclasses.fields(options)
    }
    assert [name for name, _, meaning in rows if len(meaning) < 10] == []


def test_tls_files_that_cannot_be_used_are_named(tmp_path):
    with pytest.raises(BadArgument, match=r"TLS files /no/ca.pem cannot be used"):
        tls_context(ca_file="/no/ca.pem")
    (tmp_path / "c.pem").write_text("no certificate")
    with pytest.raises(BadArgument, match=r"c.pem cannot be used"):
        tls_context(cert_file=str(tmp_path / "c.pem"))


def _shown(value: object) -> str:
    return getattr(value, "__name__", str(value))
