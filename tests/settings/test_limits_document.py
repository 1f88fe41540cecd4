"""docs/limits.md names the limits with the defaults that they have."""

import re
from pathlib import Path

from twinlog.settings.broker import BrokerSettings
from twinlog.settings.conf import effective_properties
from twinlog.settings.nameserver import NameServerSettings
from twinlog.settings.net import NetSettings

TEXT = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()


def limits_in(heading: str) -> dict[str, str]:
    section = TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", section, re.MULTILINE))


def limits_of(settings: object) -> dict[str, str]:
    return {
        key: value
        for key, value in effective_properties(settings).items()
        if key.startswith("max") and key != "maxErrorRateOfBloomFilter"
    }


def test_the_document_has_every_limit_with_its_default():
    assert limits_in("Of a broker") == limits_of(BrokerSettings())
    assert limits_in("Of a name server") == limits_of(NameServerSettings())
    assert (
        limits_of(NetSettings()).items()
        <= (limits_in("Of the connections of either") | limits_in("Of the log")).items()
    )
