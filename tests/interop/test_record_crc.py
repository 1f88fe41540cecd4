"""The checksum of whole records, which Twinlog writes by default: Java's own check agrees with it.

That Java 4.9.7 and 5.5.0 follow, open and consume such a log is what `test_replication`, `test_store_exchange` and
`test_java_client` show, as they run with the default.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interop.clusters import implementation
from tests.interop.java_rocketmq import JavaRocketmq
from tests.interop.test_store_exchange import TINY_FILES, lines, place

pytestmark = [pytest.mark.interop, pytest.mark.timeout(420)]


def test_java_that_insists_on_the_checksum_keeps_every_record(tmp_path: Path):
    """With forceVerifyPropCRC, Java keeps only records that end with their checksum."""
    client = JavaRocketmq("5.5.0")
    with implementation("twinlog").name_server(tmp_path / "names") as names:
        with implementation("twinlog").broker(tmp_path / "broker", names.address, **TINY_FILES) as broker:
            wrote, _ = lines(client.run("StoreFill", names.address, broker.address))
        (tmp_path / "broker/store/checkpoint").unlink(missing_ok=True)  # so that all of the log is checked
        strict = TINY_FILES | {"enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true"}
        with implementation("java-5.5.0").broker(tmp_path / "broker", names.address, **strict) as broker:
            topics = sorted({message["topic"] for message in wrote})
            pending = str(sum(message["topic"] == "T_delay" for message in wrote))
            read, end = lines(client.run("StoreRead", names.address, broker.address, pending, *topics))
    assert {place(message) for message in wrote} <= {place(message) for message in read}
    assert end["last"] == "one more"
