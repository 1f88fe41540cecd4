"""What can be wrong with bytes from a peer or a file."""


class WireError(Exception):
    """Bytes or text that do not follow the protocol."""


class FrameError(WireError):
    """The framing is broken: nothing after it can be trusted, so the connection closes."""


class HeaderError(WireError):
    """The header of a frame cannot be read; the connection closes, as Java's does."""


class BodyError(WireError):
    """A body is not the JSON or the layout that its request code promises."""


class RecordError(WireError):
    """A message record is torn, corrupt, or not a record at all."""


class PropertiesError(WireError):
    """Message properties that cannot be written in RocketMQ's text form."""


class CompressionError(WireError):
    """A body that does not decompress, or that grows beyond its limit."""
