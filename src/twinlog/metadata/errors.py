"""What can go wrong with metadata tables and their files."""

from __future__ import annotations


class MetadataError(Exception):
    """The base of every error of this package."""


class BrokenFile(MetadataError):
    """A table's file and its backup both hold something, and neither can be read."""

    def __init__(self, path: str, why: str, backup_why: str) -> None:
        super().__init__(
            f"{path} cannot be read ({why}) and neither can its backup {path}.bak ({backup_why}): "
            "repair one of them, or move both away to start without them"
        )


class NotSaved(MetadataError):
    """Files of tables could not be written when the broker stopped."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(
            f"topics, groups or offsets could not be saved: {cause}; the files keep what was saved before, "
            "so groups may receive their last messages again"
        )


class BrokenSnapshot(MetadataError):
    """A master's answer is not a table of the requested kind; nothing of it is applied."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(f"the master's {kind} are not usable ({why}): the table here stays as it was")


class AttributeRejected(MetadataError):
    """An invalid change of topic or group attributes; the client gets this text."""
