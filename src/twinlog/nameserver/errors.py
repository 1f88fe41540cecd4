"""Errors of the name server."""


class NameServerError(Exception):
    """Something the name server cannot do."""


class RegistrationRefused(NameServerError):
    """A registration that is not adopted; the text becomes the remark of the answer."""


class TableFull(NameServerError):
    """A KV config that would make the table too long."""

    def __init__(self, length: int) -> None:
        super().__init__(f"the KV configs would have {length} characters")
        self.length = length
