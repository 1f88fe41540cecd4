"""Which topics are collected: patterns with `*` and `?`; one that begins with `!` excludes."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from twinlog.base.system_names import DLQ_PREFIX, RETRY_PREFIX
from twinlog.client import BadArgument


class TopicPatterns:
    """`Orders*,!*-test`: matches an included pattern (all, if there is none) and no excluded one.

    The retry and dead-letter topics of a group are taken with the group, so patterns are not asked about them.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        words = [word.strip() for text in patterns for word in text.split(",")]
        if any(word in ("", "!") for word in words):
            raise BadArgument("--topics has an empty pattern; write for example --topics 'Orders*,!*-test'")
        self._included = [word for word in words if not word.startswith("!")] or ["*"]
        self._excluded = [word[1:] for word in words if word.startswith("!")]

    def wants(self, topic: str) -> bool:
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            return True
        if any(fnmatchcase(topic, pattern) for pattern in self._excluded):
            return False
        return any(fnmatchcase(topic, pattern) for pattern in self._included)
