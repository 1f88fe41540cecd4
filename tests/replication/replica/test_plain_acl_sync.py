"""A replica with aclEnable writes the accounts of its 4.9 master to a file, which its broker reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.security.test_carried_acl import JAVA

from twinlog.metadata.errors import MetadataError
from twinlog.replication.errors import ReplicationError
from twinlog.replication.replica.plain_acl_sync import PlainAclSync
from twinlog.security.plain_files import LOOK_S, PlainFiles
from twinlog.wire.codes import ResponseCode
from twinlog.wire.command import Command


class Master:
    """Stands for the connections to a master that answers request 54."""

    def __init__(self, body: bytes | None = None, code: int = 0) -> None:
        self.body, self.code = body, code

    async def request(self, address: str, code: int, fields: dict[str, str], *, timeout_ms: int) -> Command:
        assert (address, code) == ("m:1", 54)
        return Command(self.code, remark="no" if self.code else None, body=self.body)


async def test_the_accounts_of_the_master_count_on_the_replica_and_leave_it_with_the_master_s(tmp_path: Path):
    (tmp_path / "conf" / "acl").mkdir(parents=True)
    now_s = [0.0]
    files = PlainFiles(tmp_path, lambda: now_s[0])
    assert files.rules().accounts == {}
    sync, master = PlainAclSync(tmp_path), Master(json.dumps(JAVA).encode())
    assert (await sync.fetch(master, "m:1"))[0] is True
    assert (await sync.fetch(master, "m:1"))[0] is False
    now_s[0] += LOOK_S
    files.edition()
    assert set(files.rules().accounts) == {"plainadmin", "plainuser"}
    assert sync.path.stat().st_mode & 0o777 == 0o600
    master.body = json.dumps({"plainAccessConfigs": JAVA["plainAccessConfigs"][:1]}).encode()
    assert (await sync.fetch(master, "m:1"))[0] is True
    now_s[0] += LOOK_S
    files.edition()
    assert set(files.rules().accounts) == {"plainadmin"}


async def test_a_master_that_gives_none_or_a_broken_list_changes_nothing(tmp_path: Path):
    sync = PlainAclSync(tmp_path)
    await sync.fetch(Master(json.dumps(JAVA).encode()), "m:1")
    before = sync.path.read_bytes()
    assert await sync.fetch(Master(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED), "m:1") == (False, 0)
    for master in (Master(code=1), Master(b"{"), Master(b"")):
        with pytest.raises((MetadataError, ReplicationError)):
            await sync.fetch(master, "m:1")
    assert sync.path.read_bytes() == before
