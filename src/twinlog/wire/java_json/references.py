"""Java's library writes an object that repeats as `{"$ref":"$.path"}`; here it becomes the object itself, shared.

Sharing costs nothing here, but code that walks the result visits a shared object once per reference. So the limits of
values and depth count such an object once per reference too; they are computed without walking the result. An object
that contains itself is refused.
"""

# Not strict: the values are JSON of any shape.
# pyright: standard

import re
from typing import Any

from twinlog.wire.errors import BodyError
from twinlog.wire.java_json.budget import DEPTH_MAX, too_deep, too_many

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,9})\]")


def resolve(root: Any, values_max: int) -> Any:
    """`root`, changed in place, with every reference replaced by what it names."""
    return _References(root, values_max).replaced(root, 0)[0]


Size = tuple[int, int]  # values, and levels of nesting


class _References:
    """Invariant: an object in `_sizes` has no references left in it."""

    def __init__(self, root: Any, values_max: int) -> None:
        self._root = root
        self._values_max = values_max
        self._sizes: dict[int, Size] = {}  # by identity: everything lives as long as the root
        self._open: set[int] = set()

    def replaced(self, value: Any, depth: int) -> tuple[Any, Size]:
        """(`value` or what it refers to, its size)."""
        if isinstance(value, dict) and len(value) == 1 and isinstance(path := value.get("$ref"), str):
            value = self._target(path)
        if not isinstance(value, dict | list):
            return value, (1, 0)
        size = self._sizes.get(id(value)) or self._measured(value, depth)
        if depth + size[1] > DEPTH_MAX:
            raise too_deep()
        return value, size

    def _measured(self, value: dict | list, depth: int) -> Size:
        if id(value) in self._open:
            raise BodyError("JSON refers to an object that contains the reference; write it without the cycle")
        if depth > DEPTH_MAX:
            raise too_deep()
        self._open.add(id(value))
        count, height = 1, 1
        for key, member in list(value.items()) if isinstance(value, dict) else list(enumerate(value)):
            if isinstance(member, dict | list):
                value[key], (members, levels) = self.replaced(member, depth + 1)
                count += members
                height = max(height, levels + 1)
            else:
                count += 1
            if count > self._values_max:
                raise too_many(self._values_max)
        self._open.remove(id(value))
        size = self._sizes[id(value)] = (count, height)
        return size

    def _target(self, path: str) -> Any:
        target = self._root
        for name, index in _STEP.findall(path):
            try:
                target = target[int(index)] if index else target[name]
            except (KeyError, IndexError, TypeError):
                raise BodyError(f"JSON reference {path[:80]!r} has no target") from None
        if isinstance(target, dict) and "$ref" in target:
            raise BodyError(f"JSON reference {path[:80]!r} points at another reference")
        return target
