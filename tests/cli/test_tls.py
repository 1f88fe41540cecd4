"""The files of `twinlog tls init` protect a broker and let a command in."""

import asyncio
import os

import pytest
from tests.broker.running import broker_conf, running_broker
from typer.testing import CliRunner

from twinlog.cli.admin.app import run as run_admin
from twinlog.cli.tls import tls


def init(*args: str):
    return CliRunner().invoke(tls, ["init", *args])


def test_keys_are_private_nothing_is_overwritten_and_a_renewal_keeps_the_authority(tmp_path):
    folder = tmp_path / "tls"
    made = init(str(folder), "--host", "broker.example", "--host", "127.0.0.1")
    assert made.exit_code == 0 and f"tls.server.certPath={folder}/server.pem" in made.stdout
    assert {os.stat(folder / f"{name}.key").st_mode & 0o777 for name in ("ca", "server", "client")} == {0o600}
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    refused = init(str(folder))
    assert refused.exit_code != 0 and {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert init(str(folder), "--renew").exit_code == 0
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert after["ca.pem"] == before["ca.pem"] and after["server.pem"] != before["server.pem"]


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_command_asks_a_broker_that_takes_tls_only(tmp_path, capsys, trusted):
    folder, other = tmp_path / "tls", tmp_path / "other"
    assert init(str(folder)).exit_code == 0 and init(str(other)).exit_code == 0
    keys = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": folder / "server.pem",
        "tls.server.keyPath": folder / "server.key",
    }
    async with running_broker(broker_conf(tmp_path / "store", **keys)) as broker:
        ca = (folder if trusted else other) / "ca.pem"
        args = ["brokerStatus", "-b", broker.address, "--tls-ca", str(ca)]
        status = await asyncio.to_thread(run_admin, args)
        errors = capsys.readouterr().err
        assert (status == 0) == trusted, errors
        assert ("name the authority that signed its certificate (--tls-ca" in errors) != trusted
        if trusted:
            assert await asyncio.to_thread(run_admin, args[:3]) != 0, "clear text is refused"
