"""Attributes of topics and groups, and the `+key=value,-key` language that changes them.

The remarks are Java's, since administration tools show them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from twinlog.metadata.errors import AttributeRejected

MESSAGE_TYPE = "message.type"
MESSAGE_TYPES = ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: whether it may change after creation, and which values are valid."""

    changeable: bool
    check: Callable[[str], None]


def alter_attributes(
    current: Mapping[str, str] | None, changes: Mapping[str, str], known: Mapping[str, Attribute]
) -> dict[str, str]:
    """The attributes after `changes`, whose keys begin with + or -; `current` is None for something new."""
    before = current or {}
    result, keys = dict(before), set[str]()
    for signed in changes:
        sign, key = signed[:1], signed[1:]
        if not key or "+" in key or "-" in key:
            raise AttributeRejected("kv string format wrong.")
        if key in keys:
            raise AttributeRejected(f"alter duplication key. key: {key}")
        keys.add(key)
        if current is None and sign != "+":
            raise AttributeRejected(f"only add attribute is supported while creating topic. key: {key}")
        if sign not in ("+", "-"):
            raise AttributeRejected(f"wrong format key: {key}")
        if sign == "-" and key not in before:
            raise AttributeRejected(f"attempt to delete a nonexistent key: {key}")
    for signed, value in changes.items():
        sign, key = signed[0], signed[1:]
        attribute = known.get(key)
        if attribute is None:
            raise AttributeRejected(f"unsupported key: {key}")
        if current is not None and not attribute.changeable:
            raise AttributeRejected(f"attempt to update an unchangeable attribute. key: {key}")
        if sign == "-":
            del result[key]
        else:
            attribute.check(value)
            result[key] = value
    return result


def parse_changes(text: str | None) -> dict[str, str]:
    """The changes in `+key=value,-key`; empty for none."""
    changes: dict[str, str] = {}
    for part in text.split(",") if text else ():
        key, found, value = part.partition("=")
        if found and "+" not in key:
            raise AttributeRejected(f"add/alter attribute format is wrong: {key}")
        if found and not value:
            raise AttributeRejected(f"add/alter attribute format is wrong: {part}")
        if not found and "-" not in key:
            raise AttributeRejected(f"delete attribute format is wrong: {key}")
        if key in changes:
            raise AttributeRejected(f"key duplication: {key}")
        changes[key] = value.partition("=")[0]
    return changes


def _one_of(*allowed: str) -> Callable[[str], None]:
    def check(value: str) -> None:
        if value not in allowed:
            raise AttributeRejected(f"value is not in set: [{', '.join(allowed)}]")

    return check


def _at_least(low: int) -> Callable[[str], None]:
    def check(value: str) -> None:
        digits = value.removeprefix("-").removeprefix("+")
        if not digits.isdecimal() or len(digits) > 19:
            raise AttributeRejected(f'For input string: "{value}"')
        if not low <= int(value) < 2**63:
            raise AttributeRejected(f"value is not in range({low}, {2**63 - 1})")

    return check


def _effective(check: Callable[[str], None], key: str, effective: str, why: str) -> Callable[[str], None]:
    """Accepts what `check` accepts, but not a value that this broker would store without any effect.

    Values of a Java master are not checked: its tables are adopted as they are.
    """

    def check_effect(value: str) -> None:
        check(value)
        if value != effective:
            raise AttributeRejected(f"{key}={value} would have no effect: {why}; leave it out")

    return check_effect


TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    "queue.type": Attribute(False, _one_of("BatchCQ", "SimpleCQ")),
    "cleanup.policy": Attribute(
        False,
        _effective(_one_of("DELETE", "COMPACTION"), "cleanup.policy", "DELETE", "this broker deletes whole segments"),
    ),
    MESSAGE_TYPE: Attribute(True, _one_of(*MESSAGE_TYPES)),
    "reserve.time": Attribute(
        True,
        _effective(_at_least(-1), "reserve.time", "-1", "fileReservedTime counts for all topics"),
    ),
}
GROUP_ATTRIBUTES: Mapping[str, Attribute] = {}
