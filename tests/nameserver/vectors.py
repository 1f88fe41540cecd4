"""Golden frames of the real name server; see tests/vectors/README.md for how they were captured."""

import json
from pathlib import Path
from typing import Any

from twinlog.wire.command import Command, decode_command
from twinlog.wire.frame import take_frame

VECTORS = Path(__file__).parent.parent / "vectors"


def data(name: str) -> bytes:
    return bytes.fromhex((VECTORS / f"{name}.hex").read_text().replace("\n", ""))


def described(name: str) -> dict[str, Any]:
    return json.loads((VECTORS / f"{name}.json").read_text())


def command(name: str) -> Command:
    frame = take_frame(bytearray(data(name)))
    assert frame is not None
    return decode_command(frame)
