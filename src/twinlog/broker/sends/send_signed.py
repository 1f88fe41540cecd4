"""The signatures of sends, checked by the chunk: what `security.gate` does for each request, on the fast path.

Every signature is checked. What is cached until accounts change: the hash state after an account's key, whether an
account may send to a topic from an address, and templates of headers (`send_template`) with one more place to fill:

    ... "i":"UNIQ_KEY\\u0001 7F00...01 \\u0002TAGS...","j":"0",...,"Signature":" pFx...0= ","AccessKey":"name"},...
                            |   key    |------------ after ------------------|signature|-- after signature ---

A send that is not admitted is left to the plain path, which makes the refusal.
"""

from __future__ import annotations

from binascii import b2a_base64
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple

from twinlog.broker.sends.send_signed_varied import VariedHeader, VariedHeaders
from twinlog.broker.sends.send_template import BORN, BORN_DIGITS, KnownHeader, Template, learn
from twinlog.security.signatures import (
    ACCESS_KEY,
    SIGNATURE,
    SIGNATURE_LENGTH,
    UNIQUE_KEY_QUERY,
    AccountKey,
    account_key,
)
from twinlog.wire.frame import PREFIX
from twinlog.wire.sends.signed_sends import SignedOrder, decode_signed_binary, decode_signed_json, decode_usual_json

if TYPE_CHECKING:
    from hashlib import _Hash

    from twinlog.broker.sends.send_answers import Unanswered
    from twinlog.broker.sends.send_target import Target
    from twinlog.security.gate import Gate
    from twinlog.store.log.append_run import Row
    from twinlog.wire.sends.send_headers import FlatSend
    from twinlog.wire.sends.signed_sends import Signed, SignedSend

_SIGNATURE_START = b'"Signature":"'
_HEADER_BYTES_MAX = 1024  # longer ones are not cached
_HEADERS_MAX = 16384  # cached; when there are more, all are dropped
_MISSES_MAX = 8
_SOURCES_MAX = 1024  # addresses that one template was used from


class SignedParts(NamedTuple):
    """What stands around a signature, and the parts of its content; the hashes are copied for each message."""

    after: bytes  # from the unique key to the signature
    after_signature: bytes
    start: _Hash  # after the content up to the born timestamp
    middle: bytes
    rest: bytes
    outer: _Hash


class SignedHeader(KnownHeader):
    """A template of signed headers, and where the parts of the signed content come from."""

    __slots__ = ("name", "signed", "sources", "topic")

    def __init__(self, known: KnownHeader, name: str, topic: str, source: str, signed: SignedParts) -> None:
        self.constants, self.misses = known.constants, known.misses
        self.name, self.topic = name, topic
        self.sources = {source}  # addresses from which the account may send this
        self.signed = signed


class SignedSends:
    """Decodes signed sends and decides which are admitted."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._order = SignedOrder()
        self._keys: dict[str, AccountKey] = {}
        self._allowed: dict[tuple[str, str, str], bool] = {}
        self._headers: dict[bytes, SignedHeader] = {}
        self._varied = VariedHeaders()
        self._signed: Signed | None = None  # of the header that was decoded last

    def clear(self) -> None:
        """Accounts, topics or settings changed."""
        self._keys.clear()
        self._allowed.clear()
        self._headers.clear()
        self._varied.clear()

    def decode_json(self, header: bytes) -> FlatSend | None:
        usual = decode_usual_json(header)
        if usual is None:
            return self._keep(decode_signed_json(header))
        flat, self._signed = usual
        return flat

    def decode_binary(self, header: bytes) -> FlatSend | None:
        return self._keep(decode_signed_binary(header))

    def _keep(self, found: SignedSend | None) -> FlatSend | None:
        if found is None:
            return None
        flat, fields = found
        name, given = fields.get(ACCESS_KEY), fields.get(SIGNATURE)
        is_signed = name is not None and given is not None and UNIQUE_KEY_QUERY not in fields
        self._signed = (name or "", given or "", self._order.values(fields)) if is_signed else None
        return flat

    def admits(self, topic: str, source: str, body: bytes) -> bool:
        """Whether the send that was decoded last is signed by an account that may send it."""
        if self._signed is None:
            return False
        name, given, content = self._signed
        allowed = self._allowed.get((name, topic, source))
        if allowed is None:
            allowed = self._may_send(name, topic, source)
        key = self._keys.get(name) or self._key(name)
        if not allowed or key is None or not given.isascii():
            return False
        inner, outer = key.inner.copy(), key.outer.copy()
        inner.update(content.encode())
        inner.update(body)
        outer.update(inner.digest())
        return compare_digest(b2a_base64(outer.digest(), newline=False), given.encode())

    def _may_send(self, name: str, topic: str, source: str) -> bool:
        question = name, topic, source
        allowed = self._allowed.get(question)
        if allowed is None:
            if len(self._allowed) >= _HEADERS_MAX:
                self._allowed.clear()
            allowed = self._allowed[question] = self._gate.may_send(*question)
        return allowed

    def _key(self, name: str) -> AccountKey | None:
        secret = self._gate.secret_of(name)
        if secret is None:
            return None
        if len(self._keys) >= _HEADERS_MAX:
            self._keys.clear()
        key = self._keys[name] = account_key(secret)
        return key

    # -- templates -----------------------------------------------------------------------------

    def take(self, data: bytes, at: int, end: int, rows: list[Row], sends: list[Unanswered], source: str) -> int:
        """Add the messages at the front of a chunk that fit templates; returns where the first begins that does not."""
        while True:
            at = self._take_same(data, at, end, rows, sends, source)
            first = at
            if self._varied:
                at = self._varied.take(data, at, end, rows, sends, source, self._is_admitted)
            if at == first:
                return at

    def _take_same(self, data: bytes, at: int, end: int, rows: list[Row], sends: list[Unanswered], source: str) -> int:
        """The same for templates in which properties are constant, too.

        As `KnownHeaders.take`, with the signature. A loop for each message: calls would cost as much as what they do.
        """
        find, get, unpack, startswith = data.find, self._headers.get, PREFIX.unpack_from, data.startswith
        while end - at > 20:
            begin, header_at = at, at + 8
            known = get(data[header_at : find(BORN, header_at, header_at + _HEADER_BYTES_MAX) + len(BORN)])
            if known is None or known.misses >= _MISSES_MAX:
                break
            if source not in known.sources and not self._is_admitted(known, source):
                break
            (
                prefix, before, key_length, _, trailer, born_skip, key_skip, after_length, trailer_length,
                properties_start, properties_end, topic, queue_id, flag, sys_flag, reconsume_times, tags_code, keys,
                target, is_oneway,
            ) = known.constants  # fmt: skip
            after, after_signature, start, middle, rest, outer = known.signed
            signature_skip = len(after)
            while end - at > 20:  # one after the other, for the same queue
                header_at = at + 8
                if not startswith(prefix, header_at):
                    break
                length, header_length = unpack(data, at)
                body_at, frame_end = header_at + header_length, at + 4 + length
                born_at, key_at = header_at + born_skip, header_at + key_skip
                key_end, trailer_at = key_at + key_length, body_at - trailer_length
                opaque_at, born_end = key_end + after_length, born_at + BORN_DIGITS
                signature_at = key_end + signature_skip
                signature_end = signature_at + SIGNATURE_LENGTH
                born, key, opaque = data[born_at:born_end], data[key_at:key_end], data[opaque_at:trailer_at]
                if not (
                    body_at < frame_end <= end
                    and startswith(before, born_end)
                    and startswith(after, key_end)
                    and startswith(after_signature, signature_end)
                    and startswith(trailer, trailer_at)
                    and born.isdigit()
                    and key.isalnum()
                    and opaque_at < trailer_at < opaque_at + 10  # at most nine digits
                    and opaque.isdigit()
                    and (opaque[0] != 0x30 or len(opaque) == 1)
                ):
                    break
                body = data[body_at:frame_end]
                inner, signed = start.copy(), outer.copy()
                inner.update(born + middle + key + rest)
                inner.update(body)
                signed.update(inner.digest())
                if not compare_digest(b2a_base64(signed.digest(), newline=False), data[signature_at:signature_end]):
                    return at
                uniq_key, properties = key.decode(), properties_start + key + properties_end
                row = (
                    topic, queue_id, body, properties, int(born), flag, sys_flag, reconsume_times, tags_code, keys,
                    uniq_key,
                )  # fmt: skip
                rows.append(row)
                sends.append((target, None if is_oneway else opaque.decode(), uniq_key, frame_end))
                at = frame_end
            if at == begin:
                # An incomplete frame, as most chunks end with one, says nothing about its header.
                if int.from_bytes(data[at : at + 4], "big") <= end - at - 4:
                    known.misses += 1
                break
        return at

    def _is_admitted(self, known: SignedHeader | VariedHeader, source: str) -> bool:
        if not self._may_send(known.name, known.topic, source):
            return False
        if len(known.sources) >= _SOURCES_MAX:
            known.sources.clear()
        known.sources.add(source)
        return True

    def learn(self, header: bytes, row: Row, target: Target, source: str, *, is_oneway: bool) -> None:
        """Cache the templates of a header that was decoded and admitted; they replace those with the same prefix."""
        prefix = header[: header.find(BORN) + len(BORN)]
        same, is_known = self._headers.get(prefix), prefix in self._varied
        found = decode_signed_json(header) if not is_known or same is None or same.misses < _MISSES_MAX else None
        if found is None or len(prefix) > _HEADER_BYTES_MAX:
            return
        _, fields = found
        key = self._keys.get(fields[ACCESS_KEY])
        if key is None:
            return
        if not is_known:
            self._varied.learn(prefix, header, fields, row, key, target, is_oneway=is_oneway)
        parts = _same_parts(header, fields, row, key)
        if parts is None:
            return
        if len(self._headers) >= _HEADERS_MAX:
            self._headers.clear()
        template, signed = parts
        plain = KnownHeader(template, row, target, is_oneway)
        plain.misses = same.misses if same is not None else 0
        self._headers[prefix] = SignedHeader(plain, fields[ACCESS_KEY], target.topic, source, signed)


def _same_parts(
    header: bytes, fields: dict[str, str], row: Row, key: AccountKey
) -> tuple[Template, SignedParts] | None:
    """The template of headers with the same properties; None when there is none."""
    uniq_key = row[10] or ""
    template = learn(header, uniq_key) if uniq_key and len(header) <= _HEADER_BYTES_MAX else None
    if template is None or row[3].count(uniq_key.encode()) != 1:
        return None
    after, mark, rest = template.after.partition(_SIGNATURE_START)
    if not mark or header.count(SIGNATURE.encode()) != 1 or rest[SIGNATURE_LENGTH : SIGNATURE_LENGTH + 1] != b'"':
        return None
    content = _content_parts(fields, uniq_key)
    if content is None:
        return None
    start = key.inner.copy()
    start.update(content[0])
    return template, SignedParts(after + mark, rest[SIGNATURE_LENGTH:], start, content[1], content[2], key.outer)


def _content_parts(fields: dict[str, str], uniq_key: str) -> tuple[bytes, bytes, bytes] | None:
    """The signed content before the born timestamp, from there to the unique key, and after that; without the body."""
    names = sorted(name for name in fields if name != SIGNATURE)
    if "g" not in names or "i" not in names:
        return None
    born, properties = names.index("g"), names.index("i")
    start, mark, end = fields["i"].partition(f"UNIQ_KEY\x01{uniq_key}")
    if not mark or uniq_key in start or uniq_key in end:
        return None
    middle = "".join(fields[name] for name in names[born + 1 : properties]) + start + "UNIQ_KEY\x01"
    rest = end + "".join(fields[name] for name in names[properties + 1 :])
    return "".join(fields[name] for name in names[:born]).encode(), middle.encode(), rest.encode()


class SignedFrom(NamedTuple):
    """The checks for the sends of one chunk, which come from one address."""

    sends: SignedSends
    source: str

    def admits(self, topic: str, body: bytes) -> bool:
        return self.sends.admits(topic, self.source, body)
