"""Real mqadmin on another machine: refused with the key to set while there are no accounts, let in by an account.

The other machine is a network namespace with an address of its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.network import TEST, Network
from tests.interop.access_probe import Probe, Side
from tests.interop.test_protected_master import PROTECTED
from tests.interop.twinlog_servers import Twinlog

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

ROOT, NOBODY = ("twinlogkey", "12345678"), ("", "")
CHANGES = (
    "updateTopic -b {broker} -t Elsewhere -r 1 -w 1",
    "updateSubGroup -b {broker} -g G_elsewhere",
    "updateBrokerConfig -b {broker} -k fileReservedTime -v 71",
    "createUser -b {broker} -u mallory -p mallory12",
)


def test_mqadmin_on_another_machine_needs_an_account_or_a_place_on_the_list(tmp_path: Path):
    with Network.of("other") as network:
        twinlog, other = Twinlog(host=network.address(TEST)), network.place("other")
        with (
            twinlog.name_server(tmp_path / "names") as names,
            twinlog.broker(tmp_path / "open", names.address, brokerName="open") as opened,
            twinlog.broker(tmp_path / "listed", names.address, brokerName="b2", adminRequestsFrom=other.host) as listed,
            twinlog.broker(tmp_path / "closed", names.address, brokerName="closed", **PROTECTED["5.5.0"]) as closed,
        ):
            probe = Probe("5.5.0", tmp_path / "probe", other.before)
            try:
                refused_without_accounts(probe, Side(names, opened), other.host)
                assert "success" in probe.ask(Side(names, listed), NOBODY, "admin", *CHANGES[0].split())
                let_in_by_an_account(probe, Side(names, closed))
            finally:
                probe.close()
        assert "fileReservedTime=71" not in (tmp_path / "open" / "broker.conf").read_text()
        assert "fileReservedTime=71" in (tmp_path / "closed" / "broker.conf").read_text()


def refused_without_accounts(probe: Probe, side: Side, host: str) -> None:
    for command in CHANGES:
        saw = probe.ask(side, NOBODY, "admin", *command.split())
        assert f"add {host} to adminRequestsFrom in broker.conf and restart" in saw, (command, saw)
    saw = probe.ask(side, NOBODY, "admin", *"updateNamesrvConfig -k scanNotActiveBrokerInterval -v 7000".split())
    assert f"add {host} to adminRequestsFrom in namesrv.conf and restart" in saw, saw
    assert "brokerVersionDesc" in probe.ask(side, NOBODY, "admin", *"brokerStatus -b {broker}".split())


def let_in_by_an_account(probe: Probe, side: Side) -> None:
    for command in CHANGES:
        words = ("admin", *command.split())
        assert "username cannot be null." in probe.ask(side, NOBODY, *words), command
        assert "check signature failed." in probe.ask(side, (ROOT[0], "wrongsecret"), *words), command
        assert "success" in probe.ask(side, ROOT, *words), command
