"""How a running broker changes its role: the steps, and why in this order.

To master: first the link to the old master is cut, before anything is written here. Then the offsets that consumers
committed here replace those of the old master, before a consumer reads them. Only then are sends accepted.

To replica: first sends are refused. Then every send that still waits is answered or times out, before a new master's
bytes may overwrite the log: a message is acknowledged once, by the broker that keeps it. Then replicas get the rest of
the log, before their links close: one of them is the next master.

Whatever step fails, stopping there is safe: no broker both accepts sends and follows a master.
"""

from __future__ import annotations

from enum import Enum


class Step(Enum):
    STOP_METADATA_SYNC = "synchronise the master's metadata a last time, stop, and forget its address"
    STOP_FOLLOWING = "close the link to the master"
    LEARN_TOPICS = "configure topics whose messages came after the last round of metadata"
    LEAD_OFFSETS = "make this broker's consumer offsets the truth"
    STORE_AS_MASTER = "drop a partly received record and let the store append"
    TAKE_EPOCH = "take the next epoch, durably: a master that comes back finds that it was replaced"
    ACCEPT_SENDS = "take the new role: sends, delayed delivery and transaction checks begin"
    REFUSE_SENDS = "take the new role: sends, delayed delivery and transaction checks end"
    END_ANSWERS = "answer every send that still waits as not known to be replicated"
    SETTLE_ANSWERS = "answer or time out every send that still waits for replicas or disk"
    FEED_REPLICAS = "let the nearest replica take the rest of the log"
    FLUSH = "make the log durable"
    DROP_REPLICAS = "close the links of replicas"
    STORE_AS_REPLICA = "let the store take a master's bytes, and append nothing itself"
    FOLLOW_OFFSETS = "let consumer offsets follow the master's"
    START_FOLLOWING = "look for the master, and follow its log and metadata"
    REGISTER = "register with the name servers"


_TO_MASTER = (
    Step.STOP_METADATA_SYNC,
    Step.STOP_FOLLOWING,
    Step.LEARN_TOPICS,
    Step.LEAD_OFFSETS,
    Step.STORE_AS_MASTER,
    Step.TAKE_EPOCH,
    Step.ACCEPT_SENDS,
    Step.REGISTER,
)
_TO_REPLICA = (
    Step.REFUSE_SENDS,
    Step.SETTLE_ANSWERS,
    Step.FEED_REPLICAS,
    Step.FLUSH,
    Step.DROP_REPLICAS,
    Step.STORE_AS_REPLICA,
    Step.FOLLOW_OFFSETS,
    Step.START_FOLLOWING,
    Step.REGISTER,
)
# The lease that made this broker master has ended, or another one takes over: it must not answer or send anything more.
STEP_DOWN_AT_ONCE = (
    Step.REFUSE_SENDS,
    Step.END_ANSWERS,
    Step.DROP_REPLICAS,
    Step.FLUSH,
    Step.STORE_AS_REPLICA,
    Step.FOLLOW_OFFSETS,
    Step.START_FOLLOWING,
    Step.REGISTER,
)


def plan_role_change(old_role: str, new_role: str) -> tuple[Step, ...]:
    """The steps from one role to another; none when nothing changes.

    Between ASYNC_MASTER and SYNC_MASTER only what an acknowledgement means changes, from the next send on.
    """
    if old_role == new_role:
        return ()
    if new_role == "SLAVE":
        return _TO_REPLICA
    if old_role == "SLAVE":
        return _TO_MASTER
    return (Step.ACCEPT_SENDS,)
