"""Which names topics and groups may have: Java's rules, checked before anything is sent."""

import functools
import re

from twinlog.base.system_names import GROUP_LENGTH_MAX, LONG_TOPIC_LENGTH_MAX, TOPIC_LENGTH_MAX, is_retry_or_dlq
from twinlog.client.errors import BadArgument, BadMessage

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")


@functools.lru_cache(maxsize=1024)  # of names that are valid; an error is not kept
def check_topic(topic: str) -> None:
    """Raise BadMessage for a name that no broker accepts for a topic."""
    length_max = LONG_TOPIC_LENGTH_MAX if is_retry_or_dlq(topic) else TOPIC_LENGTH_MAX
    if not topic or len(topic) > length_max or not _NAME.fullmatch(topic):
        raise BadMessage(f"topic {topic!r} is not a valid name: use 1 to {length_max} of a-z A-Z 0-9 _ - % |")


def check_group(group: str) -> None:
    """Raise BadArgument for a name that no broker accepts for a group."""
    if not _NAME.fullmatch(group) or len(group) > GROUP_LENGTH_MAX:
        raise BadArgument(f"group {group!r} is not a valid name: use 1 to {GROUP_LENGTH_MAX} of a-z A-Z 0-9 _ - % |")
