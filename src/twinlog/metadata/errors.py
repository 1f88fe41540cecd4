"""What can go wrong with metadata tables and their files."""

from __future__ import annotations


class MetadataError(Exception):
    """The base of every error of this package."""


class BrokenFile(MetadataError):
    """A table's file and its backup both hold something, and neither can be read."""

    def __init__(self, path: str, why: str, backup_why: str) -> None:
        super().__init__(
            f"{path} cannot be read ({why}) and neither can its backup {path}.bak ({backup_why}): "
            f"repair one of them, or move both away to start without what they held"
        )


class NotSaved(MetadataError):
    """Files of tables could not be written at the end."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(
            f"topics, groups or offsets could not be saved: {cause}; the files keep what was saved before, "
            f"so groups may get their last messages again"
        )


class BrokenSnapshot(MetadataError):
    """A master's answer that is no table of the kind that was asked for; nothing of it is applied."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(f"the {kind} snapshot is not usable ({why}): the table keeps what it had")


class AttributeRejected(MetadataError):
    """A change of topic or group attributes that the rules forbid; the text goes to the client as it is."""
