"""The operator's configuration file, kept in step with settings that changed while the broker runs."""

from __future__ import annotations

import os
from collections.abc import Mapping

from twinlog.settings.broker_conf import read_text
from twinlog.settings.properties import replace_values


def rewrite_file(path: str, changed: Mapping[str, str]) -> None:
    """Set these keys in the operator's file; comments and all other lines stay."""
    text = replace_values(read_text(path), changed)
    temporary = f"{path}.tmp"
    with open(temporary, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary, path)
