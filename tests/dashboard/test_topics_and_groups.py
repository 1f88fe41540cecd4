"""Topics and Groups in a real browser: what they show is what the admin commands print, and what they do is done."""

import json
import subprocess
from urllib.parse import quote

import pytest
from tests.dashboard.browser import TWINLOG, new_page, serious_faults, start_dashboard, text_of

from twinlog.client import ConsumerOptions, MessageQueue, Outgoing, StartFrom
from twinlog.client.sync import Admin, Producer, PullConsumer, PushConsumer
from twinlog.wire.bodies import SubscriptionGroupConfig

HOSTILE = "<img src=x onerror=alert(1)>"
QUEUE = MessageQueue("Orders", "broker-a", 0)


def admin(shown, *words):
    """What `twinlog admin` prints, as JSON."""
    done = subprocess.run(
        [*TWINLOG, "admin", *words, "-n", shown.names.address, "--json"], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module", autouse=True)
def work(shown):
    """Ten messages in Orders, of which the group `billing` has consumed four."""
    with Admin(shown.names.address) as client:
        client.create_topic("Orders", queues=1)
        client.save_group(shown.master.address, SubscriptionGroupConfig(group_name="billing"))
    with Producer(shown.names.address, "shop") as producer:
        for number in range(10):
            producer.send(Outgoing("Orders", b"tea %d" % number))
    commit(shown, 4)


def commit(shown, offset):
    with PullConsumer(shown.names.address, "billing") as consumer:
        consumer.commit(QUEUE, offset)


def committed(shown):
    with Admin(shown.names.address) as client:
        return client.consume_stats("billing", "Orders")[0][QUEUE].consumer_offset


def in_dialog(page, button):
    page.get_by_role("dialog").get_by_role("button", name=button).click()


def progress(page):
    return page.locator('tr[id="progress-Orders-broker-a-0"]')


def test_a_topic_is_shown_as_the_admin_command_prints_it(shown, browser):
    with new_page(browser) as page:
        page.goto(shown.url("/topics"))
        page.get_by_role("link", name="Orders", exact=True).click()
        page.locator('tr[id="queue-broker-a-0"]').wait_for()
        (printed,) = admin(shown, "topicStatus", "-t", "Orders")
        cells = page.locator('tr[id="queue-broker-a-0"] td').all_inner_texts()
        assert cells[:5] == ["broker-a", "0", str(printed["Min Offset"]), str(printed["Max Offset"]), "10"]
        assert shown.master.address in text_of(page, "#content"), "the route is shown"
        page.get_by_text("billing").first.wait_for()


def test_a_topic_is_created_changed_and_deleted(shown, browser):
    with new_page(browser) as page:
        page.goto(shown.url("/topics"))
        page.get_by_role("button", name="Create a topic").click()
        page.get_by_label("Name").fill("Made Here")
        in_dialog(page, "Create")
        page.get_by_text("create topic Made Here: ").wait_for()
        page.get_by_role("button", name="Close").first.click()
        page.get_by_role("button", name="Create a topic").click()
        page.get_by_label("Name").fill("MadeHere")
        page.get_by_label("Queues on each broker").fill("3")
        in_dialog(page, "Create")
        page.locator('tr[id="queue-broker-a-2"]').wait_for()
        page.get_by_role("button", name="Change").click()
        page.get_by_label("Queues to write on each broker").fill("5")
        page.get_by_label("Queues to read on each broker").fill("5")
        in_dialog(page, "Change")
        page.locator('tr[id="queue-broker-a-4"]').wait_for()
        with Admin(shown.names.address) as client:
            assert client.topic_config(shown.master.address, "MadeHere").write_queue_nums == 5
            page.get_by_role("button", name="Delete").click()
            page.get_by_text("This cannot be undone").wait_for()
            in_dialog(page, "Delete")
            page.get_by_role("button", name="Create a topic").wait_for()
            assert "MadeHere" not in client.topic_configs(shown.master.address).topic_config_table


def test_a_reset_shows_what_becomes_of_each_offset_and_then_does_it(shown, browser):
    commit(shown, 4)
    with new_page(browser) as page:
        page.goto(shown.url("/groups?group=billing"))
        progress(page).wait_for()
        cells = progress(page).locator("td").all_inner_texts()
        (printed,) = [row for row in admin(shown, "consumerProgress", "-g", "billing") if row["Topic"] == "Orders"]
        assert cells[1:6] == ["broker-a", "0", "10", "4", "6"]
        assert [int(printed[name]) for name in ("Broker Offset", "Consumer Offset", "Diff")] == [10, 4, 6]
        page.get_by_role("button", name="Reset offsets").click()
        assert page.get_by_role("button", name="Reset", exact=True).is_disabled(), "not before a preview"
        page.get_by_role("button", name="Preview").click()
        page.get_by_text("6 messages are skipped").wait_for()
        assert committed(shown) == 4, "a preview changes nothing"
        page.get_by_label("Go to").click()
        page.get_by_text("the oldest message").click()
        page.wait_for_function("!document.body.innerText.includes('messages are skipped')")
        assert page.get_by_role("button", name="Reset", exact=True).is_disabled(), (
            "another choice needs its own preview"
        )
        page.get_by_role("button", name="Preview").click()
        page.get_by_text("4 messages are consumed again").wait_for()
        page.get_by_role("button", name="Reset", exact=True).click()
        page.get_by_text("Group billing was moved in Orders: broker-a:0 to 0").wait_for()
    assert committed(shown) == 0


def test_a_group_is_created_and_deleted(shown, browser):
    with new_page(browser) as page:
        page.goto(shown.url("/groups"))
        page.get_by_role("link", name="billing").wait_for()
        page.get_by_role("button", name="Create a group").click()
        page.get_by_label("Name").fill("audit")
        page.get_by_label("Retries before a dead letter").fill("3")
        in_dialog(page, "Create")
        page.get_by_text("Retries before a dead letter").wait_for()
        with Admin(shown.names.address) as client:
            assert client.groups(shown.master.address).subscription_group_table["audit"].retry_max_times == 3
            page.get_by_role("button", name="Delete").click()
            in_dialog(page, "Delete")
            page.get_by_role("button", name="Create a group").wait_for()
            assert "audit" not in client.groups(shown.master.address).subscription_group_table


def test_a_hostile_name_in_the_address_is_text(shown, browser):
    with new_page(browser) as page:
        for path in ("/topics?topic=", "/groups?group=", "/messages?topic="):
            page.goto(shown.url(path + quote(HOSTILE)))
            page.locator("#content").get_by_text(HOSTILE).first.wait_for()
            assert page.locator("#content img").count() == 0


def test_read_only_offers_nothing_that_changes(shown, browser, tmp_path):
    with start_dashboard(tmp_path, shown.names.address, "--read-only") as dashboard, new_page(browser) as page:
        page.goto(f"{dashboard.url}/groups?group=billing")
        progress(page).wait_for()
        for name in ("Reset offsets", "Change", "Delete"):
            assert page.get_by_role("button", name=name).count() == 0
        page.goto(f"{dashboard.url}/topics?topic=Orders")
        page.locator('tr[id="queue-broker-a-0"]').wait_for()
        assert page.get_by_role("button", name="Delete").count() == 0


@pytest.mark.parametrize("path", ["/topics", "/topics?topic=Orders", "/groups", "/groups?group=billing"])
def test_axe_finds_no_serious_fault(shown, browser, path):
    with new_page(browser, dark="=" in path) as page:
        page.goto(shown.url(path))
        page.locator("td").first.wait_for()
        assert serious_faults(page) == []


def test_a_connected_consumer_is_shown_and_answers(shown, browser):
    first = ConsumerOptions(start_from=StartFrom.FIRST)
    consumer = PushConsumer(shown.names.address, "billing", lambda message: None, consumer_options=first)
    consumer.subscribe("Orders", "*")
    with consumer, new_page(browser) as page:
        page.goto(shown.url("/groups?group=billing"))
        page.get_by_role("button", name="Ask ").click()
        page.get_by_text("as it says itself").wait_for()
        assert "python" in text_of(page, "#content")


def test_groups_of_the_broker_itself_are_hidden_until_they_are_asked_for(shown, browser):
    with new_page(browser) as page:
        page.goto(shown.url("/groups"))
        page.get_by_role("link", name="billing").wait_for()
        assert page.get_by_role("link", name="SELF_TEST_C_GROUP").count() == 0
        page.get_by_text("System groups").click()
        page.get_by_role("link", name="SELF_TEST_C_GROUP").wait_for()


@pytest.mark.parametrize(
    ("path", "why"),
    [("/topics?topic=Nope", "has no route for topic 'Nope'"), ("/groups?group=nope", "No broker has a group 'nope'")],
)
def test_what_does_not_exist_is_named_and_can_not_be_changed(shown, browser, path, why):
    with new_page(browser) as page:
        page.goto(shown.url(path))
        page.get_by_text(why).wait_for()
        assert not page.get_by_role("button", name="Delete").is_visible()
        assert serious_faults(page) == []
