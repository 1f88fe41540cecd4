"""`twinlog replication change-role`: one broker takes another role, and what it did is said in words."""

from __future__ import annotations

from twinlog.cli.shared.report import Report, text_report
from twinlog.client import Admin, BrokerRefused, ClientError
from twinlog.replication.role_plan import Step


async def change_one(admin: Admin, address: str, role: str, broker_id: int | None, *, force: bool) -> Report:
    """Change the role of the broker at `address`; ClientError when it refuses."""
    try:
        steps = await admin.change_role(address, role, broker_id, force=force)
    except BrokerRefused as refused:
        raise ClientError(f"{address} refuses: {refused.remark}") from refused
    if steps is None:
        raise ClientError(f"{address} is not a Twinlog broker; restart a Java broker to change its role")
    now = await admin.replication_status(address) or {}
    name, taken, number = now.get("brokerName", ""), now.get("role", role), now.get("brokerId")
    what = f"replica {number}" if taken == "SLAVE" else "the master"
    lines = [f"{address} is {what} of {name} now ({taken})" if steps else f"nothing to do: {address} is {taken}"]
    lines += [f"  {number}. {sentence}" for number, sentence in enumerate(map(in_words, steps), 1)]
    if steps and taken == "SLAVE":
        lines.append(f"{name} takes no messages until another of its brokers is made master")
    data = {"address": address, "brokerName": name, "role": taken, "brokerId": number, "steps": steps}
    return text_report(*lines, data=data)


def in_words(step: str) -> str:
    """What a step of this name did; a newer broker may have steps that this command does not know."""
    return Step[step].value if step in Step.__members__ else step
