"""Why a send is not acknowledged, in words for the remark of its answer: the true reason, then the next step."""

from __future__ import annotations

from collections.abc import Mapping

from twinlog.failover.ack_rule import AckRule
from twinlog.failover.etcd import EtcdError
from twinlog.failover.records import Keys

_PROBLEM_CHARS_MAX = 200  # a remark is a line: etcd's own text may name three endpoints, each with an error


def problem_text(error: Exception) -> str:
    """An error on the way to etcd or to the disk, shortened, with the name of the one at fault."""
    text = " ".join(str(error).split())
    if isinstance(error, EtcdError) and "etcd" not in text:
        text = f"etcd: {text}"
    return text if len(text) <= _PROBLEM_CHARS_MAX else f"{text[: _PROBLEM_CHARS_MAX - 3]}..."


def why_not_master(keys: Keys | None, me: str, problem: str, vacancy: str | None) -> str:
    """Why a replica refuses a send. `vacancy`: why nobody leads, if that is known."""
    if problem:
        return (
            f"this broker cannot know that it is the master ({problem}); sends go on by themselves once that is mended"
        )
    if keys is not None and keys.leader is not None and keys.leader.member != me:
        return f"the master is {keys.leader.address}; send there"
    return f"there is no master: {vacancy or 'one is being chosen'}; see `twinlog failover list`"


def why_not_safe(rule: AckRule, ends: Mapping[str, int], log_end: int, problem: str) -> str:
    """Why a master does not acknowledge what it has stored."""
    text = rule.shortfall(ends, log_end)
    if problem:
        return f"{text}; the in-sync set cannot be changed ({problem}); sends go on by themselves once that is mended"
    return f"{text}; see `twinlog failover list`"
