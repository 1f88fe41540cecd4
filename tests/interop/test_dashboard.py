"""The dashboard beside a Java pair: what is shown equals what mqadmin prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.dashboard.browser import new_page, running_browser, serious_faults, start_dashboard, text_of
from tests.interop.java_rocketmq import JavaRocketmq
from tests.interop.replica_pair import Pair

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running_browser() as browser:
        yield browser


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_a_java_pair_is_shown_as_mqadmin_prints_it_and_turns_red(browser, tmp_path, version):
    name, admin = f"java-{version}", JavaRocketmq("5.5.0")
    with Pair.running(tmp_path, name, name, "ASYNC_MASTER") as pair:
        pair.joined()
        pair.send(20)
        pair.logs_equal()
        with start_dashboard(tmp_path / "dashboard", pair.names.address) as dashboard, new_page(browser) as page:
            page.goto(dashboard.url)
            page.locator(f'tr[id="broker-{pair.replica.address}"]').get_by_text(f"RocketMQ {version}").wait_for()
            assert f"RocketMQ {version}" in text_of(page, f'tr[id="broker-{pair.master.address}"]')
            printed = admin.mqadmin("brokerStatus", "-b", pair.master.address, "-n", pair.names.address)
            put_today = re.search(r"msgPutTotalTodayNow\s*:\s*(\d+)", printed)
            assert put_today and f"{int(put_today[1]):,} msg today" in text_of(page, "#content")
            page.goto(dashboard.url + "/replication")
            page.get_by_text("nothing missing").wait_for()
            page.get_by_text("no row differs").or_(page.get_by_text("rows differ")).wait_for()
            shown = text_of(page, ".tl-pair")
            log_end = re.search(r"commitLogMaxOffset\s*:\s*(\d+)", printed)
            assert log_end and f"Log end {int(log_end[1]):,}" in shown
            if version == "5.5.0":
                status = admin.mqadmin("haStatus", "-b", pair.master.address, "-n", pair.names.address)
                acked = re.search(r"127\.0\.0\.1:\d+\s+(\d+)\s+(-?\d+)", status)
                assert acked and f"Acknowledged {int(acked[1]):,}" in shown and "In sync yes" in shown
            else:
                assert "In sync unknown" in shown and "Acknowledged unknown" in shown, "4.9 does not say"
            assert "Last sync" in text_of(page, "#content") and page.get_by_role("button", name="switch").count() == 0
            assert serious_faults(page) == []
            pair.replica.kill()
            page.locator(".tl-node-critical").wait_for(timeout=15_000)
