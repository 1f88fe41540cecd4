"""The operator's configuration file, kept in step with settings that changed while the broker runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from twinlog.settings.broker_conf import BrokerConf, read_text
from twinlog.settings.properties import replace_values
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)


async def write_settings(conf: BrokerConf, changed: Mapping[str, str]) -> None:
    """Set these keys in the file that `conf` came from; a file that cannot be written is logged."""
    if conf.path is None:
        return
    try:
        await asyncio.to_thread(rewrite_file, conf.path, changed)
    except OSError as error:
        log.error("changed settings cannot be written to their file", path=conf.path, error=str(error))


def rewrite_file(path: str, changed: Mapping[str, str]) -> None:
    """Set these keys in the operator's file; comments and all other lines stay."""
    text = replace_values(read_text(path), changed)
    temporary = f"{path}.tmp"
    with open(temporary, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary, path)
