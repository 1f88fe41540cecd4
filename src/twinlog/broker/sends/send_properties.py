"""The properties of a message as a send stores them, from their text as it was sent.

What it trades: `send` decodes the text to pairs, changes some and encodes them again. Here the text stays as it is and
the broker's own properties follow it, which gives the same bytes if the text is regular: every pair has a name and a
value, no name comes twice, and none is one that the broker writes. One pattern per set of names says so and finds the
few values that matter; all others may differ with every message. It has the names in their order, until they come in
another one. Texts that fit no pattern take the pairs, as `send` does. A property test holds both equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from twinlog.broker.sends.send_checks import own_properties
from twinlog.wire import properties as names
from twinlog.wire.java_text import tags_code
from twinlog.wire.properties import NAME_END, PAIR_END, decode_properties, encode_properties

if TYPE_CHECKING:
    from twinlog.settings.broker import BrokerSettings

HALF = -1  # the message is the first half of a transaction

Stored = tuple[bytes, int, str, str, int]
"""properties, tags code, keys, unique key, and where it waits: 0 for nowhere, HALF, or its delay level"""


class Shape(NamedTuple):
    """Names as a pattern, and which groups of a match are the values that matter; -1 is an empty one."""

    match: Callable[[str], re.Match[str] | None]
    uniq_key: int = -1
    tags: int = -1
    keys: int = -1
    special: tuple[int, int, int] | None = None  # DELAY, TRAN_MSG, WAIT, if one of them is there


NO_SHAPE = Shape(re.compile("(?!)").match)
_UNKNOWN: tuple[None, None] = None, None

_SEEN_MAX = 4096  # sets of names that are counted; when there are more, counting starts again
_SEEN_BEFORE = 64  # making a pattern costs as much as a hundred messages by pairs
_SHAPES_MAX = 1024  # patterns that are kept; when there are more, all are dropped
_NAMES_LENGTH_MAX = 512  # of those that are counted, with their separators
# The broker writes these, or they stand for something else than themselves.
_CHANGED = frozenset(
    {
        names.MSG_REGION,
        names.TRACE_ON,
        names.CLUSTER,
        names.POP_CK,
        names.REAL_TOPIC,
        names.REAL_QID,
        names.TRANSACTION_ID,
    }
)
_VALUE = f"[^{PAIR_END}]+"
_TIMER = "TIMER_"
_SPECIAL = (names.DELAY, names.TRAN_MSG, names.WAIT)
_FOUND = (names.UNIQ_KEY, names.TAGS, names.KEYS, *_SPECIAL)


class SendProperties:
    """Makes stored properties of sent ones, under the settings of now."""

    def __init__(self, settings: BrokerSettings, *, waits: bool, levels: Iterable[int], halves: bool) -> None:
        self._own = own_properties(settings)
        self.own_encoded = encode_properties(self._own)
        self._waits = waits  # WAIT=false makes a difference
        self._levels = {str(level): level for level in levels}
        self._halves = halves
        self._shapes: dict[frozenset[str], tuple[tuple[str, ...] | None, Shape | None]] = {}  # and their order, if any
        self._seen: dict[frozenset[str], int] = {}

    def shape_of(self, text: str) -> Shape:
        """The shape of texts with the names that this one has, if they have been seen often; else NO_SHAPE."""
        given = tuple(text.replace(PAIR_END, NAME_END).split(NAME_END)[:-1:2])
        key = frozenset(given)
        if len(key) < len(given) or len(given) + sum(map(len, given)) > _NAMES_LENGTH_MAX:
            return NO_SHAPE
        order, shape = self._shapes.get(key, _UNKNOWN)
        if order is not None and order != given:
            order, shape = None, self._shape_in_any_order(given)
            self._shapes[key] = order, shape
        elif shape is None:
            shape = NO_SHAPE
            seen = self._seen.pop(key, 0) + 1
            if seen > _SEEN_BEFORE:
                order, shape = (given, self._make_shape(given)) if _is_regular(given) else (None, NO_SHAPE)
                if len(self._shapes) >= _SHAPES_MAX:
                    self._shapes.clear()
                self._shapes[key] = order, shape
            else:
                if len(self._seen) >= _SEEN_MAX:
                    self._seen.clear()
                self._seen[key] = seen
        return shape

    def of(self, text: str, shape: Shape, found: re.Match[str] | None) -> Stored | None:
        """What is stored of this properties text; None when `send` must handle the message.

        `found` is the match of `shape`. Without one, all pairs are decoded. `FastSend` has the usual case inlined.
        """
        if found is None:
            return self._of_pairs(decode_properties(text))
        _, uniq_key, tags, keys, special = shape
        values, parked = found.groups(), 0
        if special is not None:
            delay, transaction, wait = special
            level = values[delay]
            if level and not values[transaction] and not values[wait]:
                where = self._levels.get(level)  # most often; as `_parked` finds it
            else:
                where = self._parked(level, values[transaction], values[wait])
            if where is None:
                return None
            parked = where
        return text.encode() + self.own_encoded, tags_code(values[tags]), values[keys], values[uniq_key], parked

    def _of_pairs(self, pairs: dict[str, str]) -> Stored | None:
        uniq_key = pairs.get(names.UNIQ_KEY)
        if uniq_key is None or any(name.startswith(_TIMER) for name in pairs):
            return None
        if self._parked(*[pairs.get(name, "") for name in _SPECIAL]) != 0:
            return None
        pairs.pop(names.POP_CK, None)
        pairs.update(self._own)
        keys = pairs.get(names.KEYS, "")
        return encode_properties(pairs), tags_code(pairs.get(names.TAGS, "")), keys, uniq_key, 0

    def _parked(self, delay: str, transaction: str, wait: str) -> int | None:
        """Where a message with these values waits; None when `send` must decide."""
        if self._waits and wait and wait.lower() != "true":
            return None  # its answer does not wait with the others
        if transaction.lower() == "true":
            return HALF if self._halves and not delay else None
        return self._levels.get(delay) if delay else 0

    def _make_shape(self, given: tuple[str, ...]) -> Shape:
        """The shape of texts with these names in this order."""
        found = [name for name in given if name in _FOUND]
        pairs = (_pair(name, f"({_VALUE})" if name in _FOUND else _VALUE) for name in given)
        return self._shape("".join(pairs), found)

    def _shape_in_any_order(self, given: tuple[str, ...]) -> Shape:
        """The shape of texts with these names in any order, as a client in Go writes them: each is there once."""
        pairs = "|".join(_pair(name, f"({_VALUE})" if name in _FOUND else f"{_VALUE}()") for name in given)
        each = "".join(f"(?({group})|(?!))" for group in range(1, len(given) + 1))
        return self._shape(f"(?:{pairs}){{{len(given)}}}{each}", list(given))

    def _shape(self, pattern: str, groups: list[str]) -> Shape:
        uniq_key, tags, keys, *special = (groups.index(name) if name in groups else -1 for name in _FOUND)
        if not self._waits:
            special[2] = -1
        match = re.compile(pattern + "()").fullmatch
        return Shape(match, uniq_key, tags, keys, tuple(special) if max(special) >= 0 else None)  # type: ignore[arg-type]


def _pair(name: str, value: str) -> str:
    return f"{re.escape(name)}{NAME_END}{value}{PAIR_END}"


def _is_regular(given: tuple[str, ...]) -> bool:
    """Whether a text with these names is stored as it is."""
    if len(set(given)) < len(given) or "" in given or names.UNIQ_KEY not in given:
        return False
    return _CHANGED.isdisjoint(given) and not any(name.startswith(_TIMER) for name in given)
