"""`diagnose group`: each situation is made for real, with a broker and members, and its finding is seen."""

import asyncio
import contextlib
import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from twinlog.broker.embedded import EmbeddedBroker
from twinlog.cli.admin.app import run as run_admin
from twinlog.cli.diagnose.app import diagnose
from twinlog.client import (
    SQL92,
    TAG,
    Admin,
    ConsumerOptions,
    MessageQueue,
    Outgoing,
    PushConsumer,
)
from twinlog.observe.findings import Weight
from twinlog.observe.groups.diagnose_group import diagnose_group
from twinlog.observe.groups.group_facts import (
    AssignedQueue,
    GroupFacts,
    MemberFacts,
    QueueFacts,
    Subscription,
    TopicFacts,
    gather_group_facts,
)
from twinlog.wire.bodies import SubscriptionGroupConfig
from twinlog.wire.codes import RequestCode

NOW = 1_700_000_000_000


@pytest.fixture
def broker(twinlog_broker_session):
    return twinlog_broker_session


@contextlib.asynccontextmanager
async def running_member(names, group, topic, expression="*", kind=TAG, account=None, **options):
    async def listen(_):
        pass

    consumer = PushConsumer(names, group, listen, options=account, consumer_options=ConsumerOptions(**options))
    for each in topic.split():
        consumer.subscribe(each, expression, kind)
    async with consumer:
        yield consumer


def member(broker, *words, **options):
    return running_member(broker.namesrv, *words, **options)


async def findings(broker, group, until="", weight=Weight.PROBLEM):
    """The texts of the findings of this weight, asked again until one has the text `until`."""
    async with Admin(broker.namesrv) as admin, asyncio.timeout(20):
        while True:
            found = diagnose_group(await gather_group_facts(admin, group, NOW))
            texts = ["\n".join([one.what, *one.evidence, one.todo]) for one in found if one.weight is weight]
            if any(until in text for text in texts):
                return texts
            await asyncio.sleep(0.1)


async def test_a_group_that_is_well_and_one_that_is_misspelled(broker):
    await asyncio.to_thread(broker.admin.create_topic, "WellTopic", queues=2)
    async with member(broker, "well-group", "WellTopic"):
        (text,) = await findings(broker, "well-group", "nothing is wrong", Weight.FINE)
        assert "1 members read" in text
    (text,) = await findings(broker, "wel-group", "no broker has a group")
    assert "did you mean 'well-group'?" in text
    (text,) = await findings(broker, "well-group", "no member is online")


async def test_a_disabled_group_and_a_topic_that_may_not_be_read(broker):
    await asyncio.to_thread(broker.admin.create_topic, "ForbiddenTopic", queues=2, perm=2)
    config = SubscriptionGroupConfig(group_name="disabled-group", consume_enable=False)
    await asyncio.to_thread(broker.admin.save_group, broker.address, config)
    async with member(broker, "disabled-group", "ForbiddenTopic"):
        texts = "\n".join(await findings(broker, "disabled-group", "may not be read"))
    assert f"updateSubGroup -g disabled-group -b {broker.address} -s true" in texts
    assert "its permission is 2; 4 allows to read" in texts


async def test_members_with_different_subscriptions_are_listed(broker):
    for topic in ("FirstTopic", "SecondTopic"):
        await asyncio.to_thread(broker.admin.create_topic, topic, queues=2)
    async with member(broker, "mixed-group", "FirstTopic"), member(broker, "mixed-group", "SecondTopic", "a || b"):
        (text, *_) = await findings(broker, "mixed-group", "members subscribe to different things")
    assert "FirstTopic: *" in text and "SecondTopic: a || b" in text


async def test_a_topic_that_does_not_exist_has_a_suggestion(broker):
    await asyncio.to_thread(broker.admin.create_topic, "Invoices")
    async with member(broker, "lost-group", "Invoices Invoice"):
        (text,) = await findings(broker, "lost-group", "does not exist")
    assert "did you mean 'Invoices'?" in text


@pytest.mark.parametrize(("expression", "kind"), [("green || blue", TAG), ("n > 1000", SQL92)])
async def test_a_filter_that_matches_nothing_is_named_with_counts(broker, expression, kind):
    topic, group = f"Filtered-{kind}", f"filter-group-{kind}"
    await asyncio.to_thread(broker.admin.create_topic, topic, queues=2)
    for number in range(6):
        message = Outgoing(topic, b"x", tags="Green", properties={"n": str(number)})
        await asyncio.to_thread(broker.producer().send, message)
    async with member(broker, group, topic, expression, kind):
        (text,) = await findings(broker, group, "matches none of the newest messages")
    assert f"{expression!r} ({kind}): 0 of 6 messages" in text
    if kind == SQL92:
        async with member(broker, group + "-2", topic, "n > 3", kind):
            (text,) = await findings(broker, group + "-2", "leaves out messages", Weight.NOTE)
        assert "matches 2 of the newest 6" in text


async def test_offsets_beyond_the_end_are_shown_by_queue(broker):
    await asyncio.to_thread(broker.admin.create_topic, "BeyondTopic", queues=1)
    reader = broker.pull_consumer("beyond-group")
    (queue,) = await asyncio.to_thread(reader.queues, "BeyondTopic")
    await asyncio.to_thread(reader.commit, queue, 100)
    # Without a push member, which would mend its offset with its first pull.
    texts = await findings(broker, "beyond-group", "beyond the end of 1 queues")
    assert any("committed 100, the queue ends at 0" in text for text in texts)


async def test_a_lock_that_another_client_holds_is_found(broker):
    await asyncio.to_thread(broker.admin.create_topic, "OrderedTopic", queues=1)
    async with Admin(broker.namesrv) as admin:
        (queue,) = (await admin.session.route("OrderedTopic")).readable
        body = {"consumerGroup": "ordered-group", "clientId": "another@client", "onlyThisBroker": False}
        body["mqSet"] = [{"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}]
        await admin.ask_broker(broker.address, RequestCode.LOCK_BATCH_MQ, None, json.dumps(body).encode())
        async with member(broker, "ordered-group", "OrderedTopic", orderly=True):
            (text,) = await findings(broker, "ordered-group", "1 of 1 queues of 'OrderedTopic' are read by no member")
    assert "a client that has gone may hold their locks" in text


async def test_paused_queues_are_named_and_no_listener_is_blamed(broker):
    await asyncio.to_thread(broker.admin.create_topic, "PausedTopic", queues=2)
    async with member(broker, "paused-group", "PausedTopic") as consumer:
        consumer.pause()
        (text,) = await findings(broker, "paused-group", "has paused", Weight.NOTE)
        assert "has paused 3 queues" in text and "PausedTopic" in text  # one is of the retry topic


async def test_looking_at_a_group_that_does_not_exist_does_not_create_it(broker):
    await asyncio.to_thread(broker.admin.create_topic, "LookedAtTopic", queues=2)
    async with Admin(broker.namesrv) as admin:
        for _ in range(2):
            found = await gather_group_facts(admin, "never-made", NOW, expected=["LookedAtTopic"])
            assert found.configs == {} and "never-made" not in found.known_groups


async def test_only_a_refused_account_is_called_one(broker):
    await asyncio.to_thread(broker.admin.create_topic, "RefusedTopic", queues=1)
    await asyncio.to_thread(
        broker.admin.save_group, broker.address, SubscriptionGroupConfig(group_name="refused-group")
    )
    async with Admin(broker.namesrv) as admin:
        with broker.master.answer(1, "the filter is not supported", requests="pull"):
            found = await gather_group_facts(admin, "refused-group", NOW, expected=["RefusedTopic"])
        assert "the filter is not supported" in found.topics["RefusedTopic"].failure
        whats = [one.what for one in diagnose_group(found)]
        assert "a broker does not let the group read topic 'RefusedTopic' now" in whats
        assert not any("account" in what for what in whats)
        disabled = SubscriptionGroupConfig(group_name="refused-group", consume_enable=False)
        await asyncio.to_thread(broker.admin.save_group, broker.address, disabled)
        found = await gather_group_facts(admin, "refused-group", NOW, expected=["RefusedTopic"])
        whats = [one.what for one in diagnose_group(found)]
        assert any("the group may not consume on" in what for what in whats)
        assert not any("account" in what for what in whats)


def test_an_account_that_may_not_consume_is_found_and_the_exit_status_says_so():
    settings = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": '{"username":"root","password":"rootsecret"}',
        "innerClientAuthenticationCredentials": '{"accessKey":"root","secretKey":"rootsecret"}',
    }
    with EmbeddedBroker(settings=settings) as broker:
        names, address = broker.namesrv_address, broker.broker_address
        root = ["-n", names, "--access-key", "root", "--secret-key", "rootsecret"]
        for words in (
            f"updateTopic -t Secret -b {address}",
            f"updateSubGroup -g readers -b {address}",
            f"createUser -u ann -p annsecret -b {address}",
            f"createAcl -s User:ann -r Topic:Secret -a Pub -d Allow -b {address}",
        ):
            assert run_admin([*words.split(), *root]) == 0
        words = ["group", "readers", "-t", "Secret", *root]
        shown = CliRunner().invoke(diagnose, [*words, "--member-access-key", "ann", "--member-secret-key", "annsecret"])
        assert shown.exit_code == 1
        text = " ".join(shown.output.split())
        assert "account 'ann' may not use the group: a member with it is not let in" in text, text
        assert "account 'ann' may not read topic 'Secret' as this group" in text, text
        assert "createAcl -s User:... -r Topic:Secret,Group:readers -a Sub" in text
        assert "may not" not in CliRunner().invoke(diagnose, words).output, "root may"


def facts(**changes) -> GroupFacts:
    """A group of one member that is well, with some facts changed."""
    queue = MessageQueue("T", "b", 0)
    wanted = (Subscription("T", "*"),)
    one = MemberFacts("m", "a:1", "JAVA", ("b:1",), wanted, {queue: AssignedQueue(True, 0, NOW, NOW)})
    topic = TopicFacts("T", True, {"b": 6}, {queue: QueueFacts(5, 10, 7)})
    config = SubscriptionGroupConfig(group_name="G")
    well = {"brokers": ("b:1",), "configs": {"b:1": config}, "members": (one,), "subscriptions": wanted}
    return GroupFacts("G", NOW, **{**well, "topics": {"T": topic}, **changes})


def texts(found: GroupFacts) -> list[str]:
    return [one.what for one in diagnose_group(found)]


def test_without_a_master_the_group_is_not_called_unknown():
    lost = facts(brokers=(), masterless=("b",), configs={}, members=())
    assert [text.partition(":")[0] for text in texts(lost)] == ["b has no master"]


def test_what_takes_long_to_make_is_judged_from_facts():
    queue = MessageQueue("T", "b", 0)
    assert texts(facts()) == ["nothing is wrong: 1 members read, 3 messages are not consumed yet"]
    below = TopicFacts("T", True, {"b": 6}, {queue: QueueFacts(5, 10, 2)})
    assert "offsets are below the start of 1 queues" in texts(facts(topics={"T": below}))[0]
    (one,) = facts().members
    waiting = {queue: AssignedQueue(True, 9, 1, 1)}
    stuck = MemberFacts("m", "a:1", "JAVA", subscriptions=one.subscriptions, queues=waiting)
    (found,) = diagnose_group(facts(members=(stuck,)))
    assert "does not return" in found.what and "consumerStatus -g G -i m -s" in found.todo
    polls = replace(stuck, polls=True)
    assert texts(facts(members=(polls,))) == ["m does not poll: messages wait for it"]
    new = replace(stuck, queues={queue: replace(waiting[queue], oldest_stored_ms=NOW - 1_000)})
    assert "nothing is wrong" in texts(facts(members=(new,)))[0], "a message after a quiet hour"
    paused = replace(stuck, queues={queue: replace(waiting[queue], paused=True)})
    assert texts(facts(members=(paused,))) == ["m has paused 1 queues: it gets nothing of them"]
    alike = [replace(one, subscriptions=(Subscription("T", text),)) for text in ("a||b", "b || a")]
    assert "nothing is wrong" in texts(facts(members=tuple(alike)))[0]
    idle = MemberFacts("n", "a:2", "JAVA", subscriptions=one.subscriptions)
    assert "1 members have no queue of 'T'" in texts(facts(members=(one, idle)))[0]
    assert "queues of 'T' are read by no member" in texts(facts(members=(idle,)))[0]
    assert "7 messages are in the dead letters" in texts(facts(dead_letters=7))[0]
    alone = SubscriptionGroupConfig(group_name="G", consume_broadcast_enable=False)
    broadcast = facts(message_model="BROADCASTING", configs={"b:1": alone})
    assert "the members broadcast, which the group may not" in texts(broadcast)[0]
    refused = TopicFacts("T", True, {"b": 6}, {queue: QueueFacts(5, 10, 7)}, refusal="NO_PERMISSION")
    assert "account 'ann' may not read topic 'T' as this group" in texts(facts(topics={"T": refused}, account="ann"))[0]
