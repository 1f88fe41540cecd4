"""Errors of access control."""

from __future__ import annotations

from twinlog.wire.codes import ResponseCode


class SecurityError(Exception):
    """Base of the errors of this room."""


class AccountsBroken(SecurityError):
    """A file of accounts that cannot be read. A server must not start without it: it would be closed, or open."""


class AccountRefused(SecurityError):
    """A change of accounts that is not possible: the code and the remark of the answer."""

    def __init__(self, remark: str, code: int = ResponseCode.NO_PERMISSION) -> None:
        super().__init__(remark)
        self.remark, self.code = remark, code
