"""Rows of the sends in a chunk: frames that fit no template are decoded, checked against their target, and added.

JSON headers that begin alike, as those of one producer do, are decoded together: a fifth less time than one by one,
whatever the order of their members. What it trades: headers behind one that is not taken were decoded in vain. So few
are decoded together after such a one, and more as long as all of them are taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinlog.base.system_names import HALF_TOPIC, SCHEDULE_TOPIC
from twinlog.broker.sends.send_answers import json_texts
from twinlog.broker.sends.send_properties import HALF
from twinlog.wire.command import ONEWAY_FLAG
from twinlog.wire.frame import BINARY, PREFIX
from twinlog.wire.java_text import tags_code
from twinlog.wire.numbers import LONG_MAX, LONG_MIN
from twinlog.wire.properties import NAME_END, PAIR_END, TRANSACTION_ID
from twinlog.wire.sends.send_headers import decode_json_sends
from twinlog.wire.values.sys_flag import TRANSACTION_MASK

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    from twinlog.broker.sends.send_answers import Unanswered
    from twinlog.broker.sends.send_properties import SendProperties, Shape
    from twinlog.broker.sends.send_signed import SignedFrom
    from twinlog.broker.sends.send_target import Target, Targets
    from twinlog.broker.sends.unhandled_ends import UnhandledEnds
    from twinlog.store.log.append_run import Row
    from twinlog.wire.sends.binary_sends import BinarySends
    from twinlog.wire.sends.send_headers import FlatSend

FRAME_BYTES_MIN = 20  # that are looked at: a shorter one is not a send
_TOGETHER_MIN, _TOGETHER_MAX = 2, 64  # headers
_BINARY_LENGTH = BINARY << 24  # of a binary header, on top of its length
_HEADER_BYTES_MAX = 64 * 1024  # longer ones are left to the plain decoder, with its limits
_START_BYTES = len(b'{"code":310')  # that headers which are decoded together have in common


class SendRows:
    """Decodes sends; `properties` are made for the settings of now, and ends of transactions go to `ends`, if given."""

    def __init__(
        self, targets: Targets, properties: SendProperties, binary: BinarySends, ends: UnhandledEnds | None
    ) -> None:
        self.properties = properties
        self.stopped_at_batch = False  # the frame that was not taken is a batch
        self.levels: set[int] = set()  # delay levels that messages were added to
        self._targets = targets
        self._binary = binary
        self._ends = ends
        self._together = _TOGETHER_MIN

    def take(
        self, data: bytes, at: int, end: int, rows: list[Row], sends: list[Unanswered], signed: SignedFrom | None
    ) -> int:
        """Add the messages of the frames from `at` on, until one is unusual, incomplete or not admitted.

        Returns where that one begins, or an end of a transaction before it. Other ends between them are set aside.
        """
        number = len(sends)
        while end - at > FRAME_BYTES_MIN:
            is_json = data[at + 4] != BINARY
            headers, bodies, frame_ends, after = self._gather(data, at, end, is_json=is_json)
            if after == at:
                break
            first = len(sends)
            if signed is not None:
                decode = signed.sends.decode_json if is_json else signed.sends.decode_binary
                self._add_each(decode, headers, bodies, frame_ends, rows, sends, signed)
            elif is_json:
                self._add_together(headers, bodies, frame_ends, rows, sends)
            else:
                self._add_each(self._binary.decode, headers, bodies, frame_ends, rows, sends, None)
            taken = len(sends) - first
            if taken < len(headers):
                at = frame_ends[taken - 1] if taken else at
                if self._ends is not None:
                    self._ends.drop_after(at)
                self._together = _TOGETHER_MIN
                break
            at, self._together = after, min(4 * self._together, _TOGETHER_MAX)
        if len(sends) > number:
            json_texts(sends, number)
        return at

    def _gather(
        self, data: bytes, at: int, end: int, *, is_json: bool
    ) -> tuple[list[bytes], list[bytes], list[int], int]:
        """Headers, bodies and ends of whole frames from `at` on that begin alike, and where the next frame begins."""
        headers: list[bytes] = []
        bodies: list[bytes] = []
        frame_ends: list[int] = []
        unpack, startswith, ends, count_max = PREFIX.unpack_from, data.startswith, self._ends, self._together
        kind, start = 0 if is_json else _BINARY_LENGTH, b""
        while end - at > FRAME_BYTES_MIN:
            length, header_length = unpack(data, at)
            header_length -= kind
            header_at, frame_end = at + 8, at + 4 + length
            body_at = header_at + header_length
            if not (body_at < frame_end <= end and 0 <= header_length <= _HEADER_BYTES_MAX):
                is_whole = body_at == frame_end <= end and 0 <= header_length <= _HEADER_BYTES_MAX
                if is_whole and ends is not None and is_json and ends.take(data[header_at:body_at], frame_end):
                    at = frame_end
                    continue
                break
            if not headers:
                start = data[header_at : header_at + _START_BYTES] if is_json else b""
            elif len(headers) == count_max or not startswith(start, header_at):
                break
            headers.append(data[header_at:body_at])
            bodies.append(data[body_at:frame_end])
            frame_ends.append(frame_end)
            at = frame_end
        return headers, bodies, frame_ends, at

    def _add_together(
        self, headers: list[bytes], bodies: list[bytes], frame_ends: list[int], rows: list[Row], sends: list[Unanswered]
    ) -> None:
        """A loop for each message: calls would cost as much as what they do."""
        get, decide, own = self._targets.get, self._targets.decide, self.properties.own_encoded
        commands = decode_json_sends(headers)
        for command, body, frame_end in zip(commands, bodies, frame_ends, strict=False):
            fields = command.extFields
            constants = (
                fields.topic, fields.default_topic_queue_nums, fields.queue_id, fields.sys_flag, fields.flag,
                fields.reconsume_times, fields.batch,
            )  # fmt: skip
            target = get(constants) or decide(constants)
            if target is None or command.flag & ~ONEWAY_FLAG:
                break
            if target.is_batch:  # which `BatchSends` decodes again
                self.stopped_at_batch = True
                break
            try:
                born = int(fields.born_timestamp)
            except ValueError:
                break
            if not LONG_MIN <= born <= LONG_MAX:
                break
            text = fields.properties
            match, uniq_at, tags_at, keys_at, special = target.shape
            found = match(text)
            if found is not None and special is None:  # `_row` without the call
                values = found.groups()
                uniq_key = values[uniq_at]
                row = (
                    target.topic, target.queue_id, body, text.encode() + own, born, target.flag, target.sys_flag,
                    target.reconsume_times, tags_code(values[tags_at]), values[keys_at], uniq_key,
                )  # fmt: skip
            else:
                row = self._row(target, body, born, text, found)
                if row is None:
                    break
                uniq_key = row[10] or ""
            rows.append(row)
            sends.append((target, None if command.flag else command.opaque, uniq_key, frame_end))

    def _add_each(
        self,
        decode: Callable[[bytes], FlatSend | None],
        headers: list[bytes],
        bodies: list[bytes],
        frame_ends: list[int],
        rows: list[Row],
        sends: list[Unanswered],
        signed: SignedFrom | None,
    ) -> None:
        """The same for headers that are decoded one by one."""
        for header, body, frame_end in zip(headers, bodies, frame_ends, strict=True):
            flat = decode(header)
            if flat is None:
                break
            opaque, command_flag, constants, born, text = flat
            target = self._targets.get(constants) or self._targets.decide(constants)
            if target is None or command_flag & ~ONEWAY_FLAG:
                break
            if target.is_batch:  # which `BatchSends` decodes again, and admits
                self.stopped_at_batch = True
                break
            if signed is not None and not signed.admits(target.topic, body):
                break
            row = self._row(target, body, born, text, target.shape.match(text))
            if row is None:
                break
            rows.append(row)
            sends.append((target, None if command_flag else opaque, row[10] or "", frame_end))

    def _row(self, target: Target, body: bytes, born: int, text: str, found: re.Match[str] | None) -> Row | None:
        """The record of a message; None when `send` must handle it. `found` is how its text fits the target's shape."""
        shape = target.shape
        if found is not None:
            _, uniq_at, tags_at, keys_at, special = shape
            values = found.groups()
            if special is None:
                return (
                    target.topic, target.queue_id, body, text.encode() + self.properties.own_encoded, born, target.flag,
                    target.sys_flag, target.reconsume_times, tags_code(values[tags_at]), values[keys_at],
                    values[uniq_at],
                )  # fmt: skip
            delay, transaction, wait = special
            parked = target.parked.get(values[delay])
            if parked is not None and not values[transaction] and not values[wait]:
                level, own = parked
                self.levels.add(level)
                return (
                    SCHEDULE_TOPIC, level - 1, body, text.encode() + own, born, target.flag, target.sys_flag,
                    target.reconsume_times, tags_code(values[tags_at]), values[keys_at], values[uniq_at],
                )  # fmt: skip
        else:
            if text[-1:] != PAIR_END:
                text += PAIR_END
            shape = self.properties.shape_of(text)
            found = shape.match(text)
        return self._row_of_properties(target, body, born, text, shape, found)

    def _row_of_properties(
        self, target: Target, body: bytes, born: int, text: str, shape: Shape, found: re.Match[str] | None
    ) -> Row | None:
        stored = self.properties.of(text, shape, found)
        if stored is None:
            return None
        properties, code, keys, uniq_key, parked = stored
        topic, queue_id, sys_flag = target.topic, target.queue_id, target.sys_flag
        if parked == HALF:
            sys_flag &= ~TRANSACTION_MASK
            transaction = f"{TRANSACTION_ID}{NAME_END}{uniq_key}{PAIR_END}".encode()
            topic, queue_id, properties = HALF_TOPIC, 0, properties + transaction + target.real_place
        elif parked:
            topic, queue_id, properties = SCHEDULE_TOPIC, parked - 1, properties + target.real_place
        if sys_flag & TRANSACTION_MASK:
            return None
        if parked > 0:
            self.levels.add(parked)
            target.park(parked, self.properties.own_encoded + target.real_place)
        target.shape = shape
        return (
            topic, queue_id, body, properties, born, target.flag, sys_flag, target.reconsume_times, code, keys,
            uniq_key,
        )  # fmt: skip
