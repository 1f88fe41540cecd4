"""Numbers as Java has them: an int has 32 bits, a long 64. Python's integers have no limit, so every input is checked.

msgspec checks `Int`, `Long` and `OpenObject` in bodies and files; `fields` checks headers.
"""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

Int = Annotated[int, msgspec.Meta(ge=INT_MIN, le=INT_MAX)]
Long = Annotated[int, msgspec.Meta(ge=LONG_MIN, le=LONG_MAX)]

# A member that is passed on unread: any JSON object, but not nested deeper than the mappings of static topics.
if TYPE_CHECKING:
    OpenObject = dict[str, Any]
else:
    _Scalar = str | Long | float | bool | None
    _Depth1 = _Scalar | list[_Scalar] | dict[str, _Scalar]
    _Depth2 = _Scalar | list[_Depth1] | dict[str, _Depth1]
    _Depth3 = _Scalar | list[_Depth2] | dict[str, _Depth2]
    _Depth4 = _Scalar | list[_Depth3] | dict[str, _Depth3]
    OpenObject = dict[str, _Scalar | list[_Depth4] | dict[str, _Depth4]]


def is_natural(text: str) -> bool:
    """Whether `text` consists of digits only, and so few that the number fits 64 bits."""
    return text.isascii() and text.isdigit() and len(text) < 19
