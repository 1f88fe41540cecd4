"""Tag subscriptions: `*`, or tags joined by `||`."""

from twinlog.wire.java_text import java_hash


def is_tag_type(expression_type: str | None) -> bool:
    """Whether a subscription of this type selects by tags; the other type is SQL92."""
    return not expression_type or expression_type == "TAG"


def parse_tags(expression: str | None) -> frozenset[str] | None:
    """The tags that `expression` accepts; None means every message."""
    if expression is None or expression.strip() in ("", "*"):
        return None
    tags = frozenset(tag.strip() for tag in expression.split("||") if tag.strip())
    return tags or None


def tag_codes(tags: frozenset[str]) -> frozenset[int]:
    return frozenset(map(java_hash, tags))
