"""What a transaction in etcd compares and writes, key by key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CreatedAt:
    """The key was created at this revision; 0: it is absent."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class ChangedAt:
    """The key was last changed at this revision; 0: it is absent."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class HasValue:
    """The key exists and has this value."""

    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    key: str


Condition = CreatedAt | ChangedAt | HasValue
Write = Put | Delete
