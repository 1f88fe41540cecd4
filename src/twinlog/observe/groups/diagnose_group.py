"""Why does a group not get messages? Rules over GroupFacts; each finding has its evidence and the next step. No I/O."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from twinlog.client import MessageQueue
from twinlog.observe.findings import Finding, fine, note, problem, shortened, sorted_findings
from twinlog.observe.groups.group_facts import STUCK_MS_MIN, GroupFacts, MemberFacts, Subscription, TopicFacts


def diagnose_group(facts: GroupFacts) -> list[Finding]:
    """The most urgent finding first; never empty."""
    rules = (
        _masters,
        _unknown,
        _disabled,
        _no_members,
        _accounts,
        _subscriptions,
        _topics,
        _filters,
        _offsets,
        _assignment,
        _listeners,
    )
    found = [finding for rule in rules for finding in rule(facts)]
    if not any(one.todo for one in found):
        behind = sum(_behind(facts.topics.values()))
        found.append(
            fine(f"nothing is wrong: {len(facts.members)} members read, {behind} messages are not consumed yet")
        )
    return sorted_findings(found)


def _masters(facts: GroupFacts) -> Iterator[Finding]:
    holders = {name for topic in facts.topics.values() for name in topic.permissions}
    lost = [name for name in facts.masterless if not holders or name in holders]
    if lost or not facts.brokers:
        yield problem(
            f"{shortened(lost) or 'the cluster'} has no master: nothing new is stored there, and what the "
            "group consumes there is not committed",
            "start it, or make a replica master: `twinlog diagnose replica` has the command",
        )


def _unknown(facts: GroupFacts) -> Iterator[Finding]:
    if facts.configs or facts.members or not facts.brokers:
        return
    nearest = difflib.get_close_matches(facts.name, facts.known_groups, n=1, cutoff=0.7)
    yield problem(
        f"no broker has a group {facts.name!r}" + (f"; did you mean {nearest[0]!r}?" if nearest else ""),
        f"start a consumer, or create it: twinlog admin updateSubGroup -g {facts.name} -c CLUSTER",
        f"{len(facts.brokers)} masters were asked, they have {len(facts.known_groups)} groups",
    )


def _disabled(facts: GroupFacts) -> Iterator[Finding]:
    for address, config in facts.configs.items():
        if not config.consume_enable:
            yield problem(
                f"the group may not consume on {address}",
                f"twinlog admin updateSubGroup -g {facts.name} -b {address} -s true",
                "consumeEnable=false",
            )
        if facts.message_model == "BROADCASTING" and not config.consume_broadcast_enable:
            yield problem(
                f"the members broadcast, which the group may not on {address}",
                f"twinlog admin updateSubGroup -g {facts.name} -b {address} -d true",
                "consumeBroadcastEnable=false",
            )
    lacking = [one for one in facts.brokers if one not in facts.configs]
    if facts.configs and lacking and facts.members:
        yield note(
            f"{len(lacking)} masters do not know the group: {shortened(lacking)}",
            "nothing to do while autoCreateSubscriptionGroup is on there; else create it with updateSubGroup",
        )


def _no_members(facts: GroupFacts) -> Iterator[Finding]:
    if facts.members or not facts.configs:
        return
    yield problem(
        "no member is online: nobody reads",
        "start a consumer of this group, and see that it reaches the same name servers and brokers",
        f"{len(facts.brokers)} masters have no connection of it",
    )


def _subscriptions(facts: GroupFacts) -> Iterator[Finding]:
    """Members of a group must subscribe alike: brokers keep one subscription, that of the last heartbeat."""
    subscribed = [one for one in facts.members if one.subscriptions]
    kinds = {frozenset(each.meaning for each in one.subscriptions) for one in subscribed}
    if len(kinds) > 1:
        yield problem(
            "members subscribe to different things: each gets a share of the queues, and what only the others want "
            "is skipped or never read",
            "give all members of a group the same topics and expressions, or put them into different groups",
            *(f"{one.client_id} at {one.address}: {'; '.join(map(str, one.subscriptions))}" for one in subscribed),
        )
    for member in facts.members:
        if member.error:
            yield note(
                f"member {member.client_id} at {member.address} does not report its state",
                "ask again; clients of other languages than Java and Python may never do",
                member.error,
            )
    if facts.members and not facts.subscriptions and not subscribed:
        yield problem("the members subscribe to no topic", "call subscribe() before the consumer starts")


def _accounts(facts: GroupFacts) -> Iterator[Finding]:
    if facts.refusal:
        yield problem(
            f"{_account(facts)} may not use the group: a member with it is not let in",
            f"if the members use it: twinlog admin createAcl -s User:... -r Group:{facts.name} -a Sub -d Allow",
            facts.refusal,
        )


def _account(facts: GroupFacts) -> str:
    return f"account {facts.account!r}" if facts.account else "a client without an account"


def _topics(facts: GroupFacts) -> Iterator[Finding]:
    for topic in facts.topics.values():
        if not topic.exists:
            nearest = difflib.get_close_matches(topic.name, facts.known_topics, n=1, cutoff=0.7)
            yield problem(
                f"topic {topic.name!r} does not exist" + (f"; did you mean {nearest[0]!r}?" if nearest else ""),
                f"correct the subscription, or create it: twinlog admin updateTopic -t {topic.name} -c CLUSTER",
                "the name servers have no route for it",
            )
        for broker, perm in topic.permissions.items():
            if not perm & 4:
                yield problem(
                    f"topic {topic.name!r} may not be read on {broker}",
                    f"twinlog admin updateTopicPerm -t {topic.name} -c CLUSTER -p 6",
                    f"its permission is {perm}; 4 allows to read",
                )
        if topic.failure:
            yield problem(
                f"a broker does not let the group read topic {topic.name!r} now",
                "do what the reason says; see that the topic's brokers run",
                topic.failure,
            )
        if topic.refusal and all(config.consume_enable for config in facts.configs.values()):
            yield problem(
                f"{_account(facts)} may not read topic {topic.name!r} as this group",
                "if the members use this account: give it Sub on the topic and on the group "
                f"(twinlog admin createAcl -s User:... -r Topic:{topic.name},Group:{facts.name} -a Sub -d Allow)",
                topic.refusal,
            )


def _filters(facts: GroupFacts) -> Iterator[Finding]:
    for wanted in facts.subscriptions:
        topic = facts.topics.get(wanted.topic)
        if topic is None or wanted.takes_all:
            continue
        looked_at = sum(one.looked_at for one in topic.queues.values())
        matched = sum(one.matched for one in topic.queues.values())
        if looked_at and not matched:
            yield problem(
                f"the filter matches none of the newest messages of {wanted.topic!r}",
                _filter_todo(wanted),
                f"{wanted.expression!r} ({wanted.kind}): 0 of {looked_at} messages",
            )
        elif looked_at and matched < looked_at:
            yield note(
                f"the filter leaves out messages of {wanted.topic!r}",
                "nothing to do if that is wanted; what does not match counts as consumed",
                f"{wanted.expression!r} ({wanted.kind}) matches {matched} of the newest {looked_at}",
            )


def _filter_todo(wanted: Subscription) -> str:
    look = f"twinlog consume -t {wanted.topic} --max 3 --json"
    if wanted.kind == "TAG":
        return f"compare with the tags that are sent: {look} (tags are case-sensitive, alternatives have || between)"
    return f"compare with the properties that are sent: {look} (a property that is missing makes the expression false)"


def _offsets(facts: GroupFacts) -> Iterator[Finding]:
    if facts.message_model == "BROADCASTING":
        return  # members keep these offsets themselves
    for topic in facts.topics.values():
        reset = f"twinlog admin resetOffsetByTime -g {facts.name} -t {topic.name} -s "
        beyond, below = list[str](), list[str]()
        for queue, one in topic.queues.items():
            if one.committed is None:
                continue
            if one.committed > one.high:
                beyond.append(f"{_place(queue)}: committed {one.committed}, the queue ends at {one.high}")
            elif one.committed < one.low:
                below.append(f"{_place(queue)}: committed {one.committed}, the queue begins at {one.low}")
        if beyond:
            yield problem(
                f"offsets are beyond the end of {len(beyond)} queues of {topic.name!r}: new messages are not seen",
                f"{reset}now, or -s with the time of the last message that was consumed",
                *beyond[:4],
            )
        if below:
            yield note(
                f"offsets are below the start of {len(below)} queues of {topic.name!r}: those messages were deleted",
                f"nothing to do: consumers go on at the oldest message; or skip ahead with {reset}now",
                *below[:4],
            )


def _assignment(facts: GroupFacts) -> Iterator[Finding]:
    answered = [one for one in facts.members if not one.error]
    if not answered or facts.message_model == "BROADCASTING":
        return
    read = {queue for one in answered for queue in one.queues}
    subscribed = {one.topic for each in answered for one in each.subscriptions}
    for topic in facts.topics.values():
        readable = [queue for queue in topic.queues if topic.permissions.get(queue.broker_name, 0) & 4]
        left = [queue for queue in readable if queue not in read]
        if topic.name in subscribed and left:
            silent, locks = len(facts.members) - len(answered), any(one.orderly for one in answered)
            yield (problem if not silent else note)(
                f"{len(left)} of {len(readable)} queues of {topic.name!r} are read by no member that answered",
                "wait 20 s for the next rebalance; if it stays, restart the members one by one, and see that all of "
                "them reach all brokers",
                f"not read: {shortened([_place(queue) for queue in left])}",
                *([f"{silent} members did not answer what they read: these queues may be theirs"] if silent else []),
                *(["it consumes in order: a client that has gone may hold their locks, for 60 s"] if locks else []),
            )
        if topic.name in subscribed and readable:
            idle = [one.client_id for one in answered if not any(queue.topic == topic.name for queue in one.queues)]
            if idle and not left:
                yield note(
                    f"{len(idle)} members have no queue of {topic.name!r}: it has {len(readable)} queues for "
                    f"{len(answered)} members",
                    f"to use all members, give the topic more queues: twinlog admin updateTopic -t {topic.name} -r N",
                    f"without a queue: {shortened(idle)}",
                )
    for member in answered:
        waiting = [queue for queue, one in member.queues.items() if member.orderly and not one.locked]
        if waiting:
            yield problem(
                f"{member.client_id} consumes in order and has lost the lock of {len(waiting)} queues",
                "another client holds it, or the broker has no master; a lock of a dead client ends after 60 s",
                f"not locked: {shortened([_place(queue) for queue in waiting])}",
            )


def _listeners(facts: GroupFacts) -> Iterator[Finding]:
    for member in facts.members:
        stuck = [
            (queue, one)
            for queue, one in member.queues.items()
            if one.cached
            and not one.paused
            and facts.now_ms - max(one.last_consume_ms, one.oldest_stored_ms, 1) > STUCK_MS_MIN
        ]
        if stuck:
            queue, one = stuck[0]
            seconds = (facts.now_ms - one.last_consume_ms) // 1000
            yield problem(
                f"{member.client_id} does not poll: messages wait for it"
                if member.polls
                else f"the listener of {member.client_id} does not return: messages wait, and no message is finished",
                _stack_hint(facts, member),
                f"{_place(queue)}: {one.cached} messages wait, the last was finished {seconds} s ago",
            )
        paused = [queue for queue, one in member.queues.items() if one.paused]
        if paused:
            yield note(
                f"{member.client_id} has paused {len(paused)} queues: it gets nothing of them",
                "nothing to do if that is wanted; its program ends it with resume()",
                f"paused: {shortened([_place(queue) for queue in paused])}",
            )
        if member.failed_per_second > 0:
            yield note(
                f"the listener of {member.client_id} fails: its messages come again later",
                "read the member's log for the reason",
                f"{member.failed_per_second:.2f} failures a second",
            )
    if facts.dead_letters:
        yield note(
            f"{facts.dead_letters} messages are in the dead letters: they are not delivered any more",
            f"mend the reason, then: twinlog admin resendDLQ -g {facts.name}",
        )


def _stack_hint(facts: GroupFacts, member: MemberFacts) -> str:
    if member.language.upper() == "JAVA":
        return f"see where it hangs: twinlog admin consumerStatus -g {facts.name} -i {member.client_id} -s"
    return "see where the process hangs (py-spy dump, a debugger), or what it waits for"


def _behind(topics: Iterable[TopicFacts]) -> Iterator[int]:
    for topic in topics:
        for one in topic.queues.values():
            if one.committed is not None:
                yield max(0, one.high - one.committed)


def _place(queue: MessageQueue) -> str:
    return f"{queue.topic} {queue.broker_name} {queue.queue_id}"
