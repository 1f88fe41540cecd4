"""Golden bytes taken from real Java peers; see tests/vectors/README.md for how they were captured."""

import json
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parent.parent / "vectors"


def names(prefix: str = "", kind: str | None = None) -> list[str]:
    found = sorted(path.stem for path in VECTORS.glob(f"{prefix}*.hex"))
    return [name for name in found if kind is None or described(name)["kind"] == kind]


def data(name: str) -> bytes:
    return bytes.fromhex((VECTORS / f"{name}.hex").read_text().replace("\n", ""))


def described(name: str) -> dict[str, Any]:
    return json.loads((VECTORS / f"{name}.json").read_text())
