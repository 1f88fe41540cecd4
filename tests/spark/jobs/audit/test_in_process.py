"""An audit in this process finds what the same audit on Spark finds."""

import random
import shutil
from collections import Counter

import pyarrow.dataset as ds
import pytest
from tests.spark.jobs.audit.audit_stores import BODY_AT, append_more, edit_json, make_master, record, with_body
from tests.spark.jobs.commands import run
from tests.store.store_at import SEGMENT, write_log

from twinlog.cli.pipeline import running
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.audit import in_process
from twinlog.spark.jobs.audit.in_process import audit_in_process, fits_in_process
from twinlog.spark.jobs.audit.job import AuditJob, audit
from twinlog.spark.jobs.audit.pairs import pairs_of

SEED = 20261116


def spoil(home, places, chance: random.Random) -> None:
    """Some of everything that can differ."""
    for _ in range(chance.randrange(6)):
        at = chance.choice(places)
        size = len(record(home, at))
        change = chance.randrange(5)
        if change == 0:
            write_log(home, at + BODY_AT, b"\xff")
        elif change == 1:
            write_log(home, at + chance.randrange(size), bytes([chance.randrange(256)]))
        elif change == 2:
            number = places.index(at)
            if at == places[number] and record(home, at)[BODY_AT : BODY_AT + 4] == b"body":
                write_log(home, at, with_body(record(home, at), b"BODY %d" % number))
        elif change == 3:
            write_log(home, at, bytes(size))
        else:
            write_log(home, at, b"\x00\x00\x00\x7f")
    if chance.random() < 0.3:
        (home / "store" / "commitlog" / f"{SEGMENT:020d}").unlink()
    if chance.random() < 0.3:
        edit_json(home, "consumerOffset.json", lambda d: d["offsetTable"]["TopicA@GroupA"].update({"0": 7}))
    if chance.random() < 0.3:
        edit_json(home, "topics.json", lambda d: d["topicConfigTable"]["TopicA"].update(perm=4))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Ten replicas of one master: equal, behind, ahead, missing, and damaged at random."""
    home = tmp_path_factory.mktemp("pairs")
    places = make_master(home / "behind")
    shutil.copytree(home / "behind", home / "master")
    append_more(home / "master", 2)
    append_more(shutil.copytree(home / "master", home / "ahead"), 3, start=900)
    shutil.copytree(home / "master", home / "twin")
    names, chance = ["twin", "behind", "ahead", "nowhere"], random.Random(SEED)
    for number in range(6):
        spoil(shutil.copytree(home / "master", home / f"spoiled-{number}"), places, chance)
        names.append(f"spoiled-{number}")
    return pairs_of([str(home / one / "store") for name in names for one in ("master", name)])


def test_damaged_stores_have_the_same_findings_on_spark_and_here(spark, pairs, tmp_path):
    tables, options = (tmp_path / "on-spark", tmp_path / "here"), {"strict": True, "queues": True, "check_crc": True}
    jobs = [AuditJob(pairs=pairs, to=str(to), settle_s=0.0, **options) for to in tables]
    on_spark, here = audit(spark, jobs[0]), audit_in_process(jobs[1])
    assert len({one.status for one in here.pairs}) == 3, f"equal, different and not comparable, with seed {SEED}"
    assert here.pairs == on_spark.pairs
    assert set(here.findings) == set(on_spark.findings)
    assert [(one.pair, one.physical_offset) for one in here.findings] == [
        (one.pair, one.physical_offset) for one in on_spark.findings
    ]
    rows: dict[str, Counter] = {on_spark.audit_id: Counter(), here.audit_id: Counter()}
    for row in spark.read.parquet(*map(str, tables)).collect():  # one table, though two programs wrote it
        found = row.asDict()
        assert found.pop("auditedAt").year >= 2026
        rows[found.pop("auditId")][tuple(found.items())] += 1
    assert rows[on_spark.audit_id] == rows[here.audit_id]
    assert sum(rows[here.audit_id].values()) > 100


def test_ranges_of_any_size_give_each_finding_once(pairs):
    found = [audit_in_process(AuditJob(pairs=pairs, range_bytes=size, metadata=False)) for size in (1000, 1 << 20)]
    assert found[0].pairs == found[1].pairs
    assert found[0].findings == found[1].findings
    few = audit_in_process(AuditJob(pairs=pairs, metadata=False, shown_max=5))
    assert (few.pairs, few.findings) == (found[0].pairs, found[0].findings[:5])


def test_small_is_what_both_logs_hold_and_few_pairs_with_a_local_table(pairs):
    twin = AuditJob(pairs=pairs[:1])
    size = audit_in_process(twin).compared_bytes
    assert [fits_in_process(twin, limit) for limit in (size, size - 1)] == [True, False]
    behind, ahead = pairs[1:2], pairs[2:3]
    assert fits_in_process(AuditJob(pairs=behind), size - 1)
    assert not fits_in_process(AuditJob(pairs=behind, strict=True), size - 1), "the rest is listed"
    assert not fits_in_process(AuditJob(pairs=ahead), size), "the rest is listed"
    assert not fits_in_process(AuditJob(pairs=pairs[:1], to="s3a://bucket/audits"), size)
    assert not fits_in_process(AuditJob(pairs=pairs[:1] * 17), 1 << 40)
    assert fits_in_process(AuditJob(pairs=pairs[3:4]), 0), "a store that cannot be read is reported by the audit"
    with pytest.raises(BadOption, match="nothing to audit"):
        audit_in_process(AuditJob(pairs=()))


def test_an_audit_that_fails_half_way_leaves_no_file(pairs, tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr(in_process, "range_findings", broken)
    with pytest.raises(RuntimeError):
        audit_in_process(AuditJob(pairs=pairs[:1], to=str(tmp_path / "audits")))
    assert list((tmp_path / "audits").iterdir()) == []


def test_the_command_says_that_it_did_not_need_spark(pairs, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(running, "spark_job", None)  # would fail
    stores = [str(one) for one in pairs[0]]
    done = run(capfd, "audit", *stores, "--to", str(tmp_path / "audits"))
    assert (done.exit_code, "equal" in done.stdout) == (0, True), done.stderr
    assert done.stderr.count("without Spark (--local-below 0 starts Spark)") == 1
    assert ds.dataset(tmp_path / "audits").to_table().column("kind").to_pylist() == ["result"]
    assert run(capfd, "audit", *stores, "--local-below", "much").exit_code == 2
