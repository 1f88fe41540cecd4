"""The Cluster page, in a real browser, beside a running pair."""

import json
import subprocess

import pytest
from tests.dashboard.browser import TWINLOG, WAIT_MS, new_page, serious_faults, text_of

from twinlog.client import Outgoing
from twinlog.client.sync import Producer


def cluster_list(address):
    done = subprocess.run(
        [*TWINLOG, "admin", "clusterList", "-n", address, "--json"], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def row(page, address):
    return page.locator(f'tr[id="broker-{address}"]')


def test_it_shows_what_the_admin_command_prints(shown, browser):
    with Producer(shown.names.address, "shop") as producer:
        for number in range(20):
            producer.send(Outgoing("Orders", b"tea %d" % number))
    with new_page(browser) as page:
        page.goto(shown.url())
        row(page, shown.replica.address).get_by_text("it is in sync").wait_for()
        page.get_by_text("20 msg today").wait_for()
        printed = cluster_list(shown.names.address)
        assert {one["Addr"] for one in printed} == {shown.master.address, shown.replica.address}
        for one in printed:
            text = text_of(page, f'tr[id="broker-{one["Addr"]}"]')
            assert one["Broker Name"] in text and ("replica 1" if int(one["BID"]) else "master") in text
            assert f"{100 * float(one['SPACE']):.0f} %"[:1] in text, "disks fill while tests run: the tens agree"
        assert "all healthy" in text_of(page, ".tl-tiles")


def test_a_killed_replica_turns_red_and_green_again_without_a_reload(shown, browser):
    with new_page(browser) as page:
        page.goto(shown.url())
        row(page, shown.replica.address).get_by_text("it is in sync").wait_for()
        page.evaluate("window.notReloaded = true")
        shown.replica.kill()
        row(page, shown.replica.address).locator(".tl-critical").wait_for(timeout=15_000)
        assert "unhealthy" in text_of(page, ".tl-alerts") and shown.replica.address in text_of(page, ".tl-alerts")
        shown.restart_replica()
        row(page, shown.replica.address).get_by_text("it is in sync").wait_for(timeout=2 * WAIT_MS)
        assert page.locator(".tl-alerts li").count() == 0
        assert "not registered any more" in text_of(page, "#content"), "what happened is listed"
        assert page.evaluate("window.notReloaded")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_serious_fault(shown, browser, dark):
    with new_page(browser, dark=dark) as page:
        page.goto(shown.url())
        row(page, shown.master.address).wait_for()
        assert page.evaluate("document.body.classList.contains('body--dark')") == dark
        assert serious_faults(page) == []


def test_keys_reach_pages_and_the_list_of_shortcuts(shown, browser):
    with new_page(browser) as page:
        page.goto(shown.url())
        row(page, shown.master.address).wait_for()
        page.keyboard.press("?")
        page.get_by_text("Keyboard shortcuts").wait_for()
        assert "Cluster" in text_of(page, ".tl-keys")
        page.keyboard.press("Escape")
        page.keyboard.press("d")
        page.wait_for_function("document.body.classList.contains('body--dark')")
        page.reload()
        page.wait_for_function("document.body.classList.contains('body--dark')")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to content"


def test_a_narrow_screen_needs_no_sideways_scrolling(shown, browser):
    with new_page(browser, width=390, height=844) as page:
        page.goto(shown.url())
        row(page, shown.master.address).wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.get_by_role("link", name="Cluster").is_visible()
