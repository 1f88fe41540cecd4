import gzip
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.vectors import VECTORS

from twinlog.replication.errors import ReplicationError
from twinlog.replication.master.link import LogBounds, MasterLink
from twinlog.replication.replica.link import ReplicaLink
from twinlog.replication.transfer import REPORT, encode_pass, pass_number
from twinlog.settings.replication import ReplicationSettings

SETTINGS = ReplicationSettings(batch_bytes_max=4096)


@pytest.mark.parametrize("session", ["session-empty-start", "session-existing-master"])
def test_a_recorded_java_session_gives_the_log_the_java_slave_had(session):
    about = json.loads((VECTORS / "ha" / f"{session}.json").read_text())
    size, files = about["commitLogFileSize"], {}
    links: dict[int, ReplicaLink] = {}
    log_end = 0
    with gzip.open(VECTORS / "ha" / f"{session}.jsonl.gz", "rt") as lines:
        for line in map(json.loads, lines):
            if line.get("event") == "connect":
                links[line["conn"]] = ReplicaLink(SETTINGS, log_end, int(line["t"] * 1000))
            elif line["dir"] == "m2s" and "hex" in line:
                data = memoryview(bytes.fromhex(line["hex"]))
                for append in links[line["conn"]].receive(data, int(line["t"] * 1000)):
                    base = append.physical_offset - append.physical_offset % size
                    file, at = files.setdefault(base, bytearray(size)), append.physical_offset - base
                    file[at : at + len(append.data)] = append.data
                    log_end = append.physical_offset + len(append.data)
    expected = {name: row["sha256"] for name, row in about["slaveLogAfter"].items()}
    found = {f"{base:020d}": hashlib.sha256(data).hexdigest() for base, data in files.items()}
    assert {name: found.get(name, hashlib.sha256(bytes(size)).hexdigest()) for name in expected} == expected


@given(
    st.binary(max_size=3000),
    st.integers(1, 700),
    st.integers(0, 3),
    st.lists(st.integers(1, 900), min_size=1, max_size=20),
)
def test_a_replica_copies_its_master_however_the_network_cuts_the_stream(log, batch, start, cuts):
    settings = ReplicationSettings(batch_bytes_max=batch)
    view = LogBounds(0, len(log), 1000)
    begin = min(start * 1000, len(log) - len(log) % 1000)
    master = MasterLink(settings, 0, whole_history=True)
    replica = ReplicaLink(settings, begin, 0)
    copy = bytearray(log[:begin])
    master.receive(REPORT.pack(begin), view, 0)
    stream = bytearray()
    while transfer := master.next_transfer(view, 0):
        stream += transfer.head + log[transfer.physical_offset : transfer.physical_offset + transfer.size]
    at = 0
    while at < len(stream):
        step = cuts[at % len(cuts)]
        for append in replica.receive(memoryview(stream)[at : at + step], 0):
            assert append.physical_offset == len(copy)
            copy += append.data
        report = replica.appended(len(copy), 0)
        if report is not None:
            master.receive(report, view, 0)
        at += step
    assert copy == log and master.acked == len(log)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=10), st.integers(0, 10_000))
def test_no_sequence_of_reports_is_acknowledged_beyond_the_log(reports, log_end):
    link, view = MasterLink(SETTINGS, 0), LogBounds(0, log_end, 1000)
    try:
        for report in reports:
            link.receive(REPORT.pack(report), view, 0)
            while link.next_transfer(view, 0):
                pass
    except ReplicationError:
        pass
    assert 0 <= link.acked <= log_end


@given(st.binary(max_size=200))
def test_garbage_from_a_master_is_a_replication_error_and_nothing_else(data):
    link = ReplicaLink(SETTINGS, 0, 0)
    try:
        end = 0
        for append in link.receive(memoryview(data), 0):
            assert append.physical_offset >= end
            end = append.physical_offset + len(append.data)
    except ReplicationError:
        pass


@given(st.integers(0, 2**62 - 1))
def test_a_pass_is_never_taken_for_a_report(number):
    (word,) = REPORT.unpack(encode_pass(number))
    assert word < 0 and pass_number(word) == number
    assert pass_number(-1) is None and pass_number(number) is None
