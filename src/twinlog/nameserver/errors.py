"""Errors of the name server."""


class NameServerError(Exception):
    """Something the name server cannot do."""


class RegistrationRefused(NameServerError):
    """A registration that must not be taken over; the text becomes the remark of the answer."""
