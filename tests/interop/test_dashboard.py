"""The dashboard beside a Java pair, page by page: what is shown equals what mqadmin prints, and actions are done."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from tests.dashboard.browser import (
    Dashboard,
    new_page,
    running_browser,
    serious_faults,
    start_dashboard,
    text_of,
    visit_until,
)
from tests.interop.admin_session import AdminSession
from tests.interop.clusters import Cluster
from tests.interop.java_rocketmq import JavaRocketmq
from tests.interop.replica_pair import Pair, until

from twinlog.client import MessageQueue
from twinlog.client.sync import Admin, PullConsumer
from twinlog.wire.bodies import SubscriptionGroupConfig

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
TOPIC, GROUP = "T_Admin", "G_Admin"  # a Java producer and a Java consumer are at work there, see AdminRunner.java


@dataclass
class Java:
    """A Java pair with clients, its mqadmin, and the dashboard that shows it."""

    version: str
    pair: Pair
    mqadmin: Callable[..., str]
    stage: dict[str, Any]
    dashboard: Dashboard

    def url(self, path: str) -> str:
        return self.dashboard.url + path

    def offsets(self, group: str, topic: str = TOPIC) -> list[list[int]]:
        """Queue, next offset, committed offset and what is left, as consumerProgress prints them."""
        printed = self.mqadmin("consumerProgress", "-g", group)
        rows = re.findall(rf"^{topic}\s+broker-a\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s", printed, re.M)
        return sorted([int(cell) for cell in row] for row in rows)

    def bounds(self, topic: str) -> list[list[int]]:
        """Queue, oldest and next offset, as topicStatus prints them."""
        printed = self.mqadmin("topicStatus", "-t", topic)
        rows = re.findall(r"^broker-a\s+(\d+)\s+(\d+)\s+(\d+)", printed, re.M)
        return sorted([int(cell) for cell in row] for row in rows)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running_browser() as browser:
        yield browser


@pytest.fixture(scope="module", params=["5.5.0", "4.9.7"])
def java(request: pytest.FixtureRequest, browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    version, home = request.param, tmp_path_factory.mktemp("java")
    name, rocketmq = f"java-{version}", JavaRocketmq(version)
    with ExitStack() as stack, Pair.running(home, name, name, "ASYNC_MASTER") as pair:
        pair.joined()
        pair.send(20)
        (home / "mqadmin").mkdir()
        with AdminSession(rocketmq, Cluster(rocketmq, pair.names, pair.master), home / "mqadmin") as session:
            with Admin(pair.names.address) as client, PullConsumer(pair.names.address, "billing") as consumer:
                client.save_group(pair.master.address, SubscriptionGroupConfig(group_name="billing"))
                for number in range(4):
                    consumer.commit(MessageQueue(TOPIC, "broker-a", number), 1)
            pair.logs_equal()
            dashboard = stack.enter_context(start_dashboard(home / "dashboard", pair.names.address))
            yield Java(version, pair, lambda *words: session.run(list(words)), session.stage, dashboard)


def in_dialog(page: Any, button: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=button, exact=True).click()


def cells(page: Any, row: str) -> list[str]:
    return page.locator(f'tr[id="{row}"] td').all_inner_texts()


def test_the_brokers_are_shown_as_mqadmin_prints_them(java: Java, browser: Any):
    pair, version = java.pair, java.version
    with new_page(browser) as page:
        page.goto(java.url("/"))
        page.locator(f'tr[id="broker-{pair.replica.address}"]').get_by_text(f"RocketMQ {version}").wait_for()
        assert f"RocketMQ {version}" in text_of(page, f'tr[id="broker-{pair.master.address}"]')

        def put_today() -> str:
            """Since midnight, which may pass while this runs."""
            printed = java.mqadmin("brokerStatus", "-b", pair.master.address)
            counts = dict(re.findall(r"msgPutTotalToday(Now|Morning)\s*:\s*(\d+)", printed))
            return f"{int(counts['Now']) - int(counts['Morning']):,} msg today"

        until(lambda: put_today() in text_of(page, f'tr[id="broker-{pair.master.address}"]'), "the count is shown")
        listed = java.mqadmin("clusterList")
        for broker, role in ((pair.master, "master"), (pair.replica, "replica 1")):
            assert re.search(rf"broker-a\s+\d\s+{broker.address}\s", listed)
            assert role in text_of(page, f'tr[id="broker-{broker.address}"]')
        assert serious_faults(page) == []


def test_a_topic_is_shown_as_mqadmin_prints_it(java: Java, browser: Any):
    with new_page(browser) as page:
        page.goto(java.url("/topics"))
        page.get_by_role("link", name=TOPIC, exact=True).click()
        page.locator('tr[id="queue-broker-a-3"]').wait_for()
        printed = java.bounds(TOPIC)
        assert len(printed) == 4 and sum(high for _, _, high in printed) == 8
        for queue, low, high in printed:
            shown = cells(page, f"queue-broker-a-{queue}")
            assert shown[:5] == ["broker-a", str(queue), str(low), str(high), str(high - low)]
        text, route = text_of(page, "#content"), java.mqadmin("topicRoute", "-t", TOPIC)
        for broker in (java.pair.master, java.pair.replica):
            assert broker.address in route and broker.address in text
        page.get_by_role("link", name=GROUP, exact=True).wait_for()
        assert serious_faults(page) == []


def test_a_topic_is_created_changed_and_deleted(java: Java, browser: Any):
    with new_page(browser) as page:
        page.goto(java.url("/topics"))
        page.get_by_role("button", name="Create a topic").click()
        page.get_by_label("Name").fill("MadeHere")
        page.get_by_label("Queues on each broker").fill("3")
        in_dialog(page, "Create")
        page.locator('tr[id="queue-broker-a-2"]').wait_for()
        assert [queue for queue, _, _ in java.bounds("MadeHere")] == [0, 1, 2]
        page.get_by_role("button", name="Change").click()
        page.get_by_label("Queues to write on each broker").fill("5")
        page.get_by_label("Queues to read on each broker").fill("5")
        in_dialog(page, "Change")
        page.locator('tr[id="queue-broker-a-4"]').wait_for()
        assert len(java.bounds("MadeHere")) == 5
        page.get_by_role("button", name="Delete").click()
        in_dialog(page, "Delete")
        page.get_by_role("button", name="Create a topic").wait_for()
        assert "MadeHere" not in java.mqadmin("topicList")


def test_a_group_and_its_java_consumer_are_shown_as_mqadmin_prints_them(java: Java, browser: Any):
    with new_page(browser) as page:
        page.goto(java.url("/groups"))
        page.get_by_role("link", name=GROUP, exact=True).click()
        page.locator(f'tr[id="progress-{TOPIC}-broker-a-3"]').wait_for()
        printed = java.offsets(GROUP)
        assert len(printed) == 4
        for queue, high, consumed, behind in printed:
            shown = cells(page, f"progress-{TOPIC}-broker-a-{queue}")
            assert shown[:6] == [TOPIC, "broker-a", str(queue), str(high), str(consumed), str(behind)]
        connected = java.mqadmin("consumerConnection", "-g", GROUP)
        (client,) = set(re.findall(r"\S+@admin-consumer\b", connected))
        page.get_by_role("button", name=f"Ask {client}").click()
        page.get_by_text("as it says itself").wait_for()
        assert "java" in text_of(page, "#content") and "Consumers 1" in text_of(page, "#content")
        assert serious_faults(page) == []


def test_a_group_is_created_and_deleted(java: Java, browser: Any):
    master = java.pair.master.address
    with new_page(browser) as page, Admin(java.pair.names.address) as client:
        page.goto(java.url("/groups"))
        page.get_by_role("button", name="Create a group").click()
        page.get_by_label("Name").fill("audit")
        page.get_by_label("Retries before a dead letter").fill("3")
        in_dialog(page, "Create")
        page.get_by_role("button", name="Delete").wait_for()
        assert client.groups(master).subscription_group_table["audit"].retry_max_times == 3
        page.get_by_role("button", name="Delete").click()
        in_dialog(page, "Delete")
        page.get_by_role("button", name="Create a group").wait_for()
        assert "audit" not in client.groups(master).subscription_group_table


def test_a_reset_changes_the_offsets_of_all_queues_or_of_one(java: Java, browser: Any):
    with new_page(browser) as page:
        page.goto(java.url("/groups?group=billing"))
        page.locator(f'tr[id="progress-{TOPIC}-broker-a-3"]').wait_for()
        page.get_by_role("button", name="Reset offsets").click()
        page.get_by_role("button", name="Preview").click()
        page.get_by_text("4 messages are skipped").wait_for()
        assert {consumed for _, _, consumed, _ in java.offsets("billing")} == {1}, "a preview changes nothing"
        in_dialog(page, "Reset")
        page.get_by_text("Group billing was moved in T_Admin").wait_for()
        assert java.offsets("billing") == [[number, 2, 2, 0] for number in range(4)]
        page.get_by_role("button", name="Reset offsets").click()
        page.get_by_label("Go to").click()
        page.get_by_text("an offset of one queue").click()
        page.get_by_label("Queue, as broker:number").fill("broker-a:1")
        page.get_by_label("Offset", exact=True).fill("1")
        page.get_by_role("button", name="Preview").click()
        page.get_by_text("1 messages are consumed again").wait_for()
        in_dialog(page, "Reset")
        page.get_by_text("Group billing was moved in T_Admin: broker-a:1 to 1").wait_for()
        assert java.offsets("billing") == [[0, 2, 2, 0], [1, 2, 1, 1], [2, 2, 2, 0], [3, 2, 2, 0]]


def test_messages_are_found_and_shown_as_mqadmin_prints_them_and_sent_again(java: Java, browser: Any):
    message_id = java.stage["ids"][6]
    with new_page(browser) as page:
        visit_until(page, java.url(f"/messages?topic={TOPIC}"), "8 messages")
        for by, text in (("id", message_id), ("id", java.stage["offsetIds"][6]), ("key", "admin-key-6")):
            visit_until(page, java.url(f"/messages?topic={TOPIC}&by={by}&text={text}"), "1 message")
            assert message_id in text_of(page, "tbody") and "body 6" in text_of(page, "tbody")
        listed = java.mqadmin("queryMsgByKey", "-t", TOPIC, "-k", "admin-key-6")
        assert re.search(rf"{message_id}\s+2\s+1\b", listed), "queue 2, offset 1"
        assert serious_faults(page) == []
        page.locator("tbody a").click()
        page.get_by_text("broker-a queue 2, offset 1").wait_for()
        page.get_by_text("what became of it").wait_for()
        text = text_of(page, "#content")
        for shown in (
            f"Message id {message_id}",
            f"Offset id {java.stage['offsetIds'][6]}",
            "Tag tag0 Keys admin-key-6 Retries before this 0",
            f"{GROUP} consumed",
        ):
            assert shown in text
        if java.version != "4.9.7":  # there, this command ends the JVM in which mqadmin runs
            facts = dict(
                re.findall(
                    r"^(.*?):\s+(.*?)\s*$", java.mqadmin("queryMsgById", "-i", message_id, "-t", TOPIC), re.MULTILINE
                )
            )
            assert (facts["Tags"].strip("[]"), facts["Queue ID"], facts["Queue Offset"]) == ("tag0", "2", "1")
            assert f"Stored {facts['Store Timestamp'].split(',')[0]} at {facts['Store Host']}" in text
            assert f"Sent {facts['Born Timestamp'].split(',')[0]} from {facts['Born Host']}" in text
        assert serious_faults(page) == []
        page.get_by_role("button", name="Send again").click()
        page.get_by_role("button", name="Send", exact=True).click()
        page.get_by_text("Sent as ").wait_for()
    assert sum(high for _, _, high in java.bounds(TOPIC)) == 9


def test_the_pipeline_page_has_no_fault_beside_a_java_pair(java: Java, browser: Any):
    with new_page(browser) as page:
        page.goto(java.url("/pipeline"))
        page.locator(".tl-panel, .tl-empty").first.wait_for()
        assert serious_faults(page) == []


def test_the_pair_is_shown_as_mqadmin_prints_it_and_a_killed_replica_turns_red(java: Java, browser: Any):
    pair = java.pair
    with new_page(browser) as page:
        page.goto(java.url("/replication"))
        page.get_by_text("nothing missing").wait_for()
        page.get_by_text("no row differs").or_(page.get_by_text("rows differ")).wait_for()

        def log_end() -> str:
            printed = java.mqadmin("brokerStatus", "-b", pair.master.address)
            found = re.search(r"commitLogMaxOffset\s*:\s*(\d+)", printed)
            return f"Log end {int(found[1]):,}" if found else "no line commitLogMaxOffset"

        until(lambda: log_end() in text_of(page, ".tl-pair"), "the page shows where the log ends")
        shown = text_of(page, ".tl-pair")
        if java.version == "5.5.0":
            status = java.mqadmin("haStatus", "-b", pair.master.address)
            acked = re.search(r"127\.0\.0\.1:\d+\s+(\d+)\s+(-?\d+)", status)
            assert acked and f"Acknowledged {int(acked[1]):,}" in shown and "In sync yes" in shown
        else:
            assert "In sync unknown" in shown and "Acknowledged unknown" in shown, "4.9 does not say"
        assert "Last sync" in text_of(page, "#content") and page.get_by_role("button", name="switch").count() == 0
        assert serious_faults(page) == []
        page.get_by_role("button", name="Compare logs").click()
        page.locator(".tl-result.tl-ok").get_by_text("equal: ").wait_for()
        pair.replica.kill()
        page.locator(".tl-node-critical").wait_for(timeout=15_000)
