"""The answers to sends whose message was not stored, in Java's words."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from twinlog.net.errors import RequestRefused
from twinlog.store.log.append import Appended, PutStatus
from twinlog.store.log.commit_log import disk_used_ratio
from twinlog.wire.codes import ResponseCode

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext


def check_put(ctx: BrokerContext, appended: Appended) -> None:
    """RequestRefused with Java's answer when the message was not stored."""
    status = appended.status
    if status is PutStatus.PUT_OK:
        return
    limit = ctx.conf.store.message_bytes_max
    code, remark = {
        PutStatus.MESSAGE_ILLEGAL: (ResponseCode.MESSAGE_ILLEGAL, illegal_remark(limit)),
        PutStatus.PROPERTIES_SIZE_EXCEEDED: (ResponseCode.MESSAGE_ILLEGAL, illegal_remark(limit)),
        PutStatus.SERVICE_NOT_AVAILABLE: (ResponseCode.SERVICE_NOT_AVAILABLE, unavailable_remark(ctx)),
        PutStatus.CREATE_SEGMENT_FAILED: (ResponseCode.SYSTEM_ERROR, no_segment_remark(ctx)),
        PutStatus.PAGE_CACHE_BUSY: (
            ResponseCode.SYSTEM_BUSY,
            "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
        ),
    }.get(status, (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"))
    raise RequestRefused(code, remark)


def illegal_remark(body_bytes_max: int) -> str:
    return (
        "the message is illegal, maybe msg body or properties length not matched. "
        f"msg body length limit {body_bytes_max}B, msg properties length limit 32KB."
    )


def no_segment_remark(ctx: BrokerContext) -> str:
    """Java's words, and whether it was for lack of space."""
    settings = ctx.conf.store
    needed, remark = settings.segment_bytes, "create mapped file failed, server is busy or broken."
    for directory in settings.commit_log_dirs:
        with contextlib.suppress(OSError):
            if (free := shutil.disk_usage(directory).free) < needed:
                remark += f" The disk of {directory} is full: a segment needs {needed} bytes, {free} are free."
    return remark


def unavailable_remark(ctx: BrokerContext) -> str:
    if ctx.store.unwritable_reason is not None:
        return f"service not available now: {ctx.store.unwritable_reason}; no message is taken until a restart"
    settings = ctx.conf.store
    directories = (
        settings.commit_log_dirs[0],
        f"{settings.root_dir}/consumequeue",
        f"{settings.root_dir}/index",
    )
    log_ratio, queue_ratio, index_ratio = (disk_used_ratio(Path(directory)) for directory in directories)
    disks = f"CL: {log_ratio:5.2f} CQ: {queue_ratio:5.2f} INDEX: {index_ratio:5.2f}"
    return (
        "service not available now. It may be caused by one of the following reasons: the broker's disk is full "
        f"[{disks}], messages are put to the slave, message store has been shut down, etc."
    )
