"""The Cluster and Replication pages, in a real browser, beside a running pair."""

import json
import subprocess

import pytest
from tests.dashboard.browser import TWINLOG, WAIT_MS, new_page, serious_faults, start_dashboard, text_of
from tests.interop.twinlog_servers import Twinlog

from twinlog.client import Outgoing
from twinlog.client.sync import Producer

PATHS = ["/", "/replication", "/pipeline"]


def twinlog(*words):
    done = subprocess.run([*TWINLOG, *words, "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def row(page, address):
    return page.locator(f'tr[id="broker-{address}"]')


def in_sync(page, shown):
    """Wait for the drawing of a pair whose replica follows."""
    page.locator(".tl-node", has_text="replica 1").get_by_text("yes").wait_for(timeout=2 * WAIT_MS)


def test_the_cluster_page_shows_what_the_admin_command_prints(shown, browser):
    with Producer(shown.names.address, "shop") as producer:
        for number in range(20):
            producer.send(Outgoing("Orders", b"tea %d" % number))
    with new_page(browser) as page:
        page.goto(shown.url())
        page.get_by_text("20 msg today").wait_for()
        printed = twinlog("admin", "clusterList", "-n", shown.names.address)
        assert {one["Addr"] for one in printed} == {shown.master.address, shown.replica.address}
        for one in printed:
            text = text_of(page, f'tr[id="broker-{one["Addr"]}"]')
            assert one["Broker Name"] in text and ("replica 1" if int(one["BID"]) else "master") in text
            assert f"{100 * float(one['SPACE']):.0f} %"[0] in text, "disks fill while tests run: the tens agree"


def test_the_replication_page_shows_what_the_command_prints_and_compares_logs(shown, browser):
    with new_page(browser) as page:
        page.goto(shown.url("/replication"))
        in_sync(page, shown)
        page.get_by_text("no row differs").wait_for()
        (group,) = twinlog("replication", "status", "-n", shown.names.address)
        master, replica = group["brokers"]
        pair = text_of(page, ".tl-pair")
        assert f"Log end {master['logEnd']:,}" in pair and f"Acknowledged {replica['lag']['acked']:,}" in pair
        assert "nothing missing" in pair and replica["lag"]["bytes"] == 0
        version = replica["status"]["metadata"]["topics"]["version"]["counter"]
        cells = page.locator("tr", has_text="topics").first.locator("td").all_inner_texts()
        assert [cell.split()[0] for cell in cells[3:5]] == [str(version)] * 2, "the master's and the replica's"
        page.get_by_role("button", name="Compare logs").click()
        page.locator(".tl-result.tl-ok").get_by_text(f"equal: {master['logEnd']} bytes").wait_for()


def test_a_killed_replica_turns_red_and_green_again_without_a_reload(shown, browser):
    with new_page(browser) as page:
        page.goto(shown.url())
        row(page, shown.replica.address).get_by_text("it is in sync").or_(
            row(page, shown.replica.address).get_by_text("disk")
        ).wait_for()
        page.evaluate("window.notReloaded = true")
        shown.replica.kill()
        row(page, shown.replica.address).locator(".tl-critical").wait_for(timeout=15_000)
        assert "unhealthy" in text_of(page, ".tl-alerts") and shown.replica.address in text_of(page, ".tl-alerts")
        shown.restart_replica()
        row(page, shown.replica.address).locator(".tl-critical").wait_for(state="detached", timeout=2 * WAIT_MS)
        assert "not registered any more" in text_of(page, "#content"), "what happened is listed"
        assert page.evaluate("window.notReloaded")


def test_the_pipeline_page_shows_what_jobs_left(shown, browser):
    with new_page(browser) as page:
        page.goto(shown.url("/pipeline"))
        page.get_by_text("batch 13 is begun").wait_for()
        text = text_of(page, "#content")
        for part in ("1,500 rows", "4.0 KiB", "tick 7", "250 B", "75 %", "Orders", str(shown.home / "copies")):
            assert part in text, part


@pytest.mark.parametrize("path", PATHS)
def test_axe_finds_no_serious_fault_in_light_and_dark_and_a_narrow_screen_shows_all(shown, browser, path):
    with new_page(browser) as page:
        page.goto(shown.url(path))
        page.locator(".tl-panel").first.wait_for()
        page.wait_for_function("!document.body.innerText.includes('Asking')")
        assert serious_faults(page) == []
        page.keyboard.press("d")
        page.wait_for_function("document.body.classList.contains('body--dark')")
        assert serious_faults(page) == []
        page.set_viewport_size({"width": 390, "height": 844})
        page.wait_for_function("document.documentElement.scrollWidth <= 390")
        assert page.get_by_role("link", name="Cluster").is_visible()


def test_keys_reach_pages_and_the_list_of_shortcuts(shown, browser):
    with new_page(browser) as page:
        page.goto(shown.url())
        row(page, shown.master.address).wait_for()
        page.keyboard.press("?")
        page.get_by_text("Keyboard shortcuts").wait_for()
        assert "Replication" in text_of(page, ".tl-keys")
        page.keyboard.press("Escape")
        page.keyboard.press("d")
        page.wait_for_function("document.body.classList.contains('body--dark')")
        page.reload()
        page.wait_for_function("document.body.classList.contains('body--dark')")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to content"
        page.keyboard.press("r")
        page.wait_for_url("**/replication")


def test_read_only_offers_no_action(shown, browser):
    with (
        start_dashboard(shown.home / "read-only", shown.names.address, "--read-only") as dashboard,
        new_page(browser) as page,
    ):
        page.goto(dashboard.url + "/replication")
        in_sync(page, shown)
        page.get_by_text("read-only").wait_for()
        assert (
            page.get_by_role("button", name="Compare").count() == page.get_by_role("button", name="switch").count() == 0
        )


def test_a_planned_switch_says_what_will_happen_and_does_it(shown, browser):
    old, new = shown.master.address, shown.replica.address
    with new_page(browser) as page:
        page.goto(shown.url("/replication"))
        in_sync(page, shown)
        page.get_by_role("button", name="Planned switch").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_text(f"{new} becomes ASYNC_MASTER of broker-a; {old} follows it as replica 1.").wait_for()
        dialog.get_by_role("button", name="Cancel").click()
        dialog.wait_for(state="detached")
        (group,) = twinlog("replication", "status", "-n", shown.names.address)
        assert group["brokers"][0]["address"] == old, "nothing happens without confirmation"
        page.get_by_role("button", name="Planned switch").click()
        dialog.get_by_role("button", name="Switch", exact=True).click()
        page.locator(".tl-result.tl-ok").get_by_text(f"{new} is the master of broker-a now").wait_for()
        page.locator(".tl-node", has_text="master, async").get_by_text(new).wait_for()
        page.get_by_text(f"the master was {old} and is {new} now, epoch 1").wait_for()
    (group,) = twinlog("replication", "status", "-n", shown.names.address)
    assert [one["address"] for one in group["brokers"]] == [new, old]


def test_with_accounts_people_sign_in_and_the_secret_stays_out_of_page_and_address(shown, browser, tmp_path):
    secret = "rootsecret-of-the-test"
    protected = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": json.dumps({"username": "root", "password": secret}),
        "brokerName": "guarded",
    }
    with (
        Twinlog().name_server(tmp_path / "namesrv") as names,
        Twinlog().broker(tmp_path / "broker", names.address, **protected),
        start_dashboard(tmp_path / "dashboard", names.address) as dashboard,
        new_page(browser) as page,
    ):
        page.goto(dashboard.url + "/replication")
        assert page.url == dashboard.url + "/login?next=/replication"
        assert serious_faults(page) == []
        page.get_by_label("Access key").fill("root")
        page.get_by_label("Secret key").fill("a wrong one")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("refuses this account").wait_for()
        page.errors.clear()  # the browser notes the answer 401
        page.get_by_label("Access key").fill("root")
        page.get_by_label("Secret key").fill(secret)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/replication")
        page.get_by_text("guarded").first.wait_for()
        assert secret not in page.content() and secret not in page.url
        (cookie,) = [one for one in page.context.cookies() if one["name"].startswith("twinlog_session")]
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url("**/login")
        page.goto(dashboard.url)
        assert "/login" in page.url
        assert secret not in dashboard.output.read_text()


def test_an_address_without_a_page_leads_back(shown, browser):
    with browser.new_context(color_scheme="dark") as context:
        page = context.new_page()
        answer = page.goto(shown.url("/nosuch<b>"))
        assert answer.status == 404 and "/nosuch" in text_of(page, "main")
        assert serious_faults(page) == []
        page.get_by_role("link", name="Go to the cluster").click()
        page.get_by_text("DefaultCluster").first.wait_for()
