"""Send requests as bytes. What stays the same for a queue is encoded once, and each request is put into its gaps:

    {"code":310,"extFields":{"a":"shop", ... "g":" BORN ","h":"0","i": PROPERTIES ,"j":"0", ...,"opaque": NUMBER ,...}

A property test holds the bytes equal to those of the plain codec (`send_header`, then `encode_command`). A signature
covers all fields, so a producer with credentials uses the plain codec.
"""

import msgspec

from twinlog.client.routing.session import LANGUAGE
from twinlog.client.sending.draft import SendContext, SendDraft, send_header
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.command import Command, encode_header
from twinlog.wire.fields import encode_fields
from twinlog.wire.frame import encode_prefix

_TEMPLATES_MAX = 4096  # then all are made again: a producer uses few queues at a time
_encode_text = msgspec.json.encode
_Template = tuple[bytes, bytes, bytes, bytes]
_Key = tuple[str, MessageQueue, int, int, int]


class SendFrames:
    """The send requests of one producer."""

    def __init__(self, context: SendContext) -> None:
        self._context = context
        self._templates: dict[_Key, _Template] = {}

    def encode(self, draft: SendDraft, queue: MessageQueue, opaque: int) -> bytes:
        """The whole frame that sends `draft` to `queue`."""
        key = (draft.topic, queue, draft.code, draft.sys_flag, draft.flag)
        template = self._templates.get(key)
        if template is None:
            template = self._make(key, draft, queue)
        before_born, before_properties, before_opaque, rest = template
        text, body = _encode_text(draft.properties), draft.body
        header = b"%b%d%b%b%b%d%b" % (
            before_born,
            draft.born_ms,
            before_properties,
            text,
            before_opaque,
            opaque,
            rest,
        )
        return b"%b%b%b" % (encode_prefix(len(header), len(body)), header, body)

    def _make(self, key: _Key, draft: SendDraft, queue: MessageQueue) -> _Template:
        if len(self._templates) >= _TEMPLATES_MAX:
            self._templates.clear()
        empty = SendDraft(draft.code, draft.topic, "", "", b"", 0, draft.sys_flag, draft.flag, draft.batch)
        fields = encode_fields(send_header(empty, queue, self._context))
        header = encode_header(Command(draft.code, 0, language=LANGUAGE, fields=fields))
        # A quote within a value is escaped, so each of these stands once.
        before_born, _, rest = header.partition(b'"g":"0"')
        between, _, rest = rest.partition(b'"i":""')
        before_opaque, _, rest = rest.partition(b'"opaque":0')
        made = (before_born + b'"g":"', b'"' + between + b'"i":', before_opaque + b'"opaque":', rest)
        self._templates[key] = made
        return made
