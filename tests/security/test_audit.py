"""The audit log: one line for each administration request, without secrets, and never too large."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from tests.broker.running import broker_conf, running_broker
from tests.broker.test_protected import ACCESS, ALICE, ROOT, make_alice, signed

from twinlog.client.signing import Credentials
from twinlog.security.audit import REFUSED_PER_MINUTE, AuditLog, audit_line


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_each_administration_request_leaves_a_line_with_its_result(tmp_path: Path):
    """Seen to fail: without `audited`."""
    async with running_broker(broker_conf(tmp_path, **ACCESS)) as broker:
        async with signed(broker, ROOT) as root:
            await make_alice(root)
            await root.request(26)  # reads settings: not an administration request
            await root.request(25, {}, b"fileReservedTime=50\ninitAuthenticationUser=hidden")
        async with signed(broker, ALICE) as alice:
            await alice.request(215, {"topic": "T"})
        async with signed(broker, None) as stranger:
            await stranger.request(25, {}, b"\xff")
    path = tmp_path / "config" / "audit.log"
    seen = lines(path)
    assert [(one["account"], one["request"], one["result"]) for one in seen] == [
        ("root", "AUTH_CREATE_USER", 0),
        ("root", "AUTH_CREATE_ACL", 0),
        ("root", "UPDATE_BROKER_CONFIG", 1),
        ("alice", "DELETE_TOPIC_IN_BROKER", 16),
        (None, "UPDATE_BROKER_CONFIG", 16),
    ]
    assert seen[0]["what"] == {"username": "alice"}
    assert seen[2]["what"] == {"settings": ["fileReservedTime", "initAuthenticationUser"]}
    assert seen[3]["peer"].startswith("127.0.0.1:") and "Topic:T" in seen[3]["remark"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not any(word in path.read_text() for word in ("root secret", "alice secret", "hidden", "Signature"))


async def test_a_name_that_nobody_has_proven_is_not_shown_as_who_did_it(tmp_path: Path):
    """Seen to fail: a stranger left lines of root, also for a code that needs no signature."""
    conf = broker_conf(tmp_path, **ACCESS, authenticationWhitelist="25", authorizationWhitelist="25")
    async with running_broker(conf) as broker:
        async with signed(broker, Credentials("root", "guessed")) as thief:
            await thief.request(25, {}, b"fileReservedTime=50")
            await thief.request(215, {"topic": "T"})
        async with signed(broker, ROOT) as root:
            await make_alice(root)
            await root.request(3002, {"username": "root"}, b'{"password":"another"}')
    first, second, *_, last = lines(tmp_path / "config" / "audit.log")
    assert [(one["account"], one["claims"], one["result"]) for one in (first, second)] == [
        (None, "root", 0),
        (None, "root", 16),
    ]
    assert last["account"] == "root", "who it was before the change"


async def test_strangers_do_not_push_out_the_lines_of_administrators(tmp_path: Path):
    """Seen to fail: without the limit, every refused request was a line."""
    async with running_broker(broker_conf(tmp_path, **ACCESS)) as broker:
        async with signed(broker, None) as stranger:
            for number in range(3 * REFUSED_PER_MINUTE):
                await stranger.request(215, {"topic": f"T{number}"})
        async with signed(broker, ROOT) as root:
            await root.request(215, {"topic": "T"})
    seen = lines(tmp_path / "config" / "audit.log")
    assert len(seen) <= 2 * (REFUSED_PER_MINUTE + 1) + 1, "a minute may end meanwhile"
    assert any("note" in one for one in seen) and seen[-1]["account"] == "root"


async def test_without_accounts_the_name_that_a_request_gives_is_not_believed(tmp_path: Path):
    async with running_broker(broker_conf(tmp_path)) as broker, signed(broker, ROOT) as root:
        await root.request(25, {}, b"fileReservedTime=50")
    assert [one["account"] for one in lines(tmp_path / "config" / "audit.log")] == [None]


def test_the_files_are_rotated_and_bounded(tmp_path: Path):
    audit = AuditLog(tmp_path / "logs" / "audit.log", bytes_max=1000, files_max=3, now_ms=lambda: 0)
    for number in range(100):
        audit.write(audit_line(number, "root", "10.0.0.1:1", 215, {"topic": f"T{number}"}, None, 0, None))
    names = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert names == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all(path.stat().st_size <= 1000 for path in (tmp_path / "logs").iterdir())
    assert lines(tmp_path / "logs" / "audit.log")[-1]["what"] == {"topic": "T99"}


def test_what_a_peer_sends_is_cut_and_stays_on_its_line():
    fields = {f"f{number}": "x" * 10_000 for number in range(100)} | {"a\nb": "c\nd\ud800"}
    line = audit_line(0, "n" * 10_000, "peer", 999_999, fields, b"y" * 100_000, 1, "r" * 10_000)
    assert line.count(b"\n") == 1 and len(line) < 32 * 600
    assert json.loads(line)["request"] == "999999"


def test_a_full_disk_does_not_stop_an_administrator(tmp_path: Path, caplog):
    (tmp_path / "file").write_text("")
    audit = AuditLog(tmp_path / "file" / "audit.log", 1000, 2, lambda: 0)
    audit.write(b"{}\n")
    audit.write(b"{}\n")
    assert caplog.text.count("the audit log cannot be written") == 1
