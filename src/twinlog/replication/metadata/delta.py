"""How a Twinlog replica asks its Twinlog master for changed metadata, and how the answer looks.

The replica sends, for each kind, which revision it holds and in which epoch. An epoch begins when the master's
process starts. The master answers with the rows that changed since, in pages; a kind that did not change is left
out. A replica from another epoch gets every row, and adopts them together after the last page.

    request fields:  topics="epoch:revision", groups="...", ...  ("epoch:revision:whole" between pages of a whole table)
    answer body:     {"topics": {epoch, revision, whole, more, dataVersion, changed, removed}, ...}, or empty
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from twinlog.wire.bodies import DataVersion
from twinlog.wire.errors import BodyError
from twinlog.wire.numbers import Int, Long, is_natural

_EPOCH_LENGTH_MAX = 64


class Delta(msgspec.Struct, rename="camel", omit_defaults=True):
    """One page of one kind."""

    epoch: str
    revision: Long
    data_version: DataVersion
    whole: bool = False
    more: bool = False
    changed: dict[str, msgspec.Raw] = {}
    removed: list[str] = []
    forbidden: dict[str, dict[str, Int]] | None = None  # groups only, and only when it changed


@dataclass(frozen=True, slots=True)
class Held:
    """The revision of one kind that a replica holds."""

    epoch: str = ""
    revision: int = 0
    whole: bool = False  # some pages of the whole table have arrived, not all

    def __str__(self) -> str:
        return f"{self.epoch}:{self.revision}" + (":whole" if self.whole else "")


def parse_held(text: str) -> Held:
    epoch, _, rest = text.partition(":")
    revision, _, whole = rest.partition(":")
    if not is_natural(revision):
        raise BodyError(f"{text!r} is not a revision that a replica holds; write epoch:revision")
    return Held(epoch, int(revision), whole == "whole")


def decode_changes(body: bytes | None) -> dict[str, msgspec.Raw]:
    """The deltas in an answer by kind, each for `decode_delta`; an empty body means that nothing changed."""
    if not body:
        return {}
    try:
        return msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError) as error:
        raise BodyError(f"the master's changes are not readable: {error}") from error


def decode_delta(kind: str, raw: msgspec.Raw) -> Delta:
    """One page; BodyError also for an epoch or revision with which the next page could not be requested."""
    try:
        delta = msgspec.json.decode(raw, type=Delta)
    except (ValueError, RecursionError) as error:
        raise BodyError(f"the master's changes of {kind} are not readable: {error}") from error
    held = Held(delta.epoch, delta.revision)
    if len(delta.epoch) > _EPOCH_LENGTH_MAX or parse_held(str(held)) != held:
        raise BodyError(f"the master's changes of {kind} have an invalid epoch: {delta.epoch[:_EPOCH_LENGTH_MAX]!r}")
    return delta
