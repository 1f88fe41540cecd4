"""Messages in a real browser: found by time, key and id, shown whole, sent again; and nothing in them becomes HTML."""

import json

import pytest
from tests.dashboard.browser import new_page, serious_faults, start_dashboard, text_of, visit_until
from tests.dashboard.dead_letters import make_dead_letter

from twinlog.client import MessageQueue, Outgoing
from twinlog.client.sync import Admin, Producer

SCRIPT = "<script>window.hacked = true</script><img src=x onerror='window.hacked = true'>"


@pytest.fixture(scope="module")
def sent(shown):
    """Results by what was sent."""
    with Admin(shown.names.address) as admin:
        admin.create_topic("Orders", queues=1)
    with Producer(shown.names.address, "shop") as producer:
        return {
            "json": producer.send(Outgoing("Orders", '{"order": 7, "tea": [1, 2]}', keys="order-7", tags="tea")),
            "bytes": producer.send(Outgoing("Orders", bytes(range(256)))),
            "hostile": producer.send(
                Outgoing("Orders", SCRIPT, keys="<b>k</b>", tags="<i>t</i>", properties={"note": SCRIPT})
            ),
        }


def detail(shown, result):
    place = f"topic={result.queue.topic}&broker={result.queue.broker_name}&queue={result.queue.queue_id}"
    return shown.url(f"/messages?{place}&offset={result.queue_offset}")


def test_messages_are_found_by_time_key_and_id(shown, browser, sent):
    with new_page(browser) as page:
        page.goto(shown.url("/messages"))
        page.get_by_label("Topic").fill("Orders")
        page.get_by_role("button", name="Find").click()
        page.get_by_text("3 messages").wait_for()
        for by, text in (("key", "order-7"), ("id", sent["json"].message_id)):
            visit_until(page, shown.url(f"/messages?topic=Orders&by={by}&text={text}"), "1 message")
            assert sent["json"].message_id in text_of(page, "tbody")
        page.goto(shown.url("/messages?topic=Orders&by=key&text="))
        page.get_by_text("give a key to look for").wait_for()
        page.goto(shown.url("/messages?topic=Orders&by=time&begin=2001-01-01T00:00:00&end=2001-01-02T00:00:00"))
        page.get_by_text("0 messages").wait_for()


def test_a_body_is_shown_as_json_text_or_hex(shown, browser, sent):
    with new_page(browser) as page:
        page.goto(detail(shown, sent["json"]))
        assert page.locator(".tl-body pre").inner_text() == json.dumps({"order": 7, "tea": [1, 2]}, indent=2)
        page.get_by_role("button", name="Hex").click()
        page.get_by_text("00000000  7b 22 6f 72").wait_for()
        page.get_by_role("button", name="Text").click()
        page.wait_for_function("document.querySelector('.tl-body pre').innerText == '{\"order\": 7, \"tea\": [1, 2]}'")
        assert sent["json"].message_id in text_of(page, "#content")
        page.goto(detail(shown, sent["bytes"]))
        assert page.locator(".tl-body pre").inner_text().startswith("00000000  00 01 02 03")


def test_a_hostile_message_is_only_text(shown, browser, sent):
    """A body, a key, a tag and a property stay text: no element is made of them, and nothing runs."""
    with new_page(browser) as page:
        page.goto(shown.url("/messages?topic=Orders"))
        page.get_by_text("<b>k</b>").wait_for()
        page.goto(detail(shown, sent["hostile"]))
        assert page.locator(".tl-body pre").inner_text() == SCRIPT
        assert page.locator("#content script, #content img, #content b, #content i:not(.material-icons)").count() == 0
        assert page.evaluate("window.hacked") is None


def test_a_message_is_sent_again_as_a_new_one(shown, browser, sent):
    with new_page(browser) as page, Admin(shown.names.address) as admin:
        page.goto(detail(shown, sent["json"]))
        page.get_by_role("button", name="Send again").click()
        page.get_by_text("Every group that reads the topic gets it").wait_for()
        page.get_by_role("button", name="Send", exact=True).click()
        page.get_by_text("Sent as ").wait_for()
        again = admin.message_at(MessageQueue("Orders", "broker-a", 0), 3)
        assert (again.body, again.keys, again.tags) == (b'{"order": 7, "tea": [1, 2]}', ["order-7"], "tea")
        assert again.message_id != sent["json"].message_id


def test_dead_letters_are_exported_and_delivered_again(shown, browser):
    make_dead_letter(shown.names.address, "billing", "Failing", b"cannot be done")
    with new_page(browser, accept_downloads=True) as page:
        page.goto(shown.url("/messages?topic=%25DLQ%25billing"))
        page.get_by_text("cannot be done").wait_for()
        with page.expect_download() as download:
            page.get_by_role("button", name="Export as JSON lines").click()
        (line,) = download.value.path().read_text().splitlines()
        assert json.loads(line)["body"] == "cannot be done"
        page.get_by_role("button", name="Deliver these again").click()
        page.get_by_role("button", name="Deliver", exact=True).click()
        page.get_by_text("1 delivered to billing again").wait_for()


def test_read_only_shows_messages_and_sends_none(shown, browser, sent, tmp_path):
    with start_dashboard(tmp_path, shown.names.address, "--read-only") as dashboard, new_page(browser) as page:
        page.goto(detail(shown, sent["json"]).replace(shown.dashboard.url, dashboard.url))
        page.locator(".tl-body pre").wait_for()
        assert page.get_by_role("button", name="Send again").count() == 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_serious_fault(shown, browser, sent, dark):
    with new_page(browser, dark=dark) as page:
        page.goto(shown.url("/messages?topic=Orders"))
        page.locator("td").first.wait_for()
        assert serious_faults(page) == []
        page.goto(detail(shown, sent["json"]))
        page.get_by_text("what became of it").wait_for()
        assert serious_faults(page) == []
