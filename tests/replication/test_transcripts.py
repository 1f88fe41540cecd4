"""Transcripts of the HA protocol: what is said above the line, what happens below it.

`master ...` sets up a master's half, `replica log-end=...` a replica's half; then peers speak, time
passes and logs grow. After each command everything that the half under test does is written down.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from twinlog.replication.errors import ReplicationError
from twinlog.replication.master.link import LinkState, LogBounds, MasterLink
from twinlog.replication.replica.link import ReplicaLink
from twinlog.replication.transfer import encode_head, encode_pass, encode_report
from twinlog.settings.replication import ReplicationSettings

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


class Stage:
    """Carries out a transcript's commands and notes what comes of them."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.notes: list[str] = []
        self.master: MasterLink | None = None
        self.replica: ReplicaLink | None = None
        self.log = LogBounds(0, 0, 1000)
        self.log_end = 0

    def run(self, line: str) -> None:
        words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        try:
            match words:
                case ["master", *rest] if all("=" in word for word in rest):
                    self._begin_master(options)
                case ["replica", first, *_] if first.startswith("log-end="):
                    self.log_end = int(options["log-end"])
                    self.replica = ReplicaLink(_settings(options), self.log_end, self.now_ms)
                    self._report()
                case ["replica", "reports", number]:
                    self._hear(encode_report(int(number)))
                case ["replica", "shows", "pass", number]:
                    self._hear(encode_pass(int(number)))
                case ["replica", "sends", "bytes", text]:
                    self._hear(bytes.fromhex(text))
                case ["log", "grows", "to", number]:
                    self.log = replace(self.log, end=int(number))
                    self._drain()
                case ["log", "loses", "everything", "before", number]:
                    self.log = replace(self.log, start=int(number))
                    self._drain()
                case [time, "ms", "pass"]:
                    self.now_ms += int(time)
                    self._tick()
                case ["master", "sends", *_]:
                    size = int(options["size"])
                    data = encode_head(int(options["offset"]), size) + bytes(int(options.get("arrived", size)))
                    self._deliver(data)
                case ["master", "goes", "on", "with", count, "bytes"]:
                    self._deliver(bytes(int(count)))
                case ["master", "heartbeats", *_]:
                    self._deliver(encode_head(int(options["offset"]), 0))
                case _:
                    raise AssertionError(f"the transcript says {line!r}, which nobody understands")
        except ReplicationError as error:
            self.notes.append(f"closes: {error}")

    def _begin_master(self, options: dict[str, str]) -> None:
        end = int(options.get("log-end", "0"))
        self.log = LogBounds(int(options.get("log-start", "0")), end, int(options.get("segment-size", "1000")))
        whole = options.get("whole-history") == "yes"
        self.master = MasterLink(_settings(options), self.now_ms, whole_history=whole)

    def _hear(self, data: bytes) -> None:
        assert self.master is not None
        before = self.master.acked
        self.master.receive(data, self.log, self.now_ms)
        if self.master.acked != before:
            self.notes.append(f"acknowledged up to {self.master.acked}")
        self._drain()

    def _drain(self) -> None:
        if self.master is None:
            return
        before = self.master.state
        while transfer := self.master.next_transfer(self.log, self.now_ms):
            what = f"sends offset={transfer.physical_offset} size={transfer.size}"
            self.notes.append(what if transfer.size else f"heartbeats offset={transfer.physical_offset}")
        if self.master.state is LinkState.STUCK and before is not LinkState.STUCK:
            self.notes.append(f"stuck: offset {self.master.next_offset} is deleted")

    def _tick(self) -> None:
        if self.master is not None:
            if self.master.is_silent(self.now_ms):
                self.notes.append("closes: silent")
            else:
                self._drain()
        if self.replica is not None:
            if self.replica.is_silent(self.now_ms):
                self.notes.append("closes: silent")
            else:
                self._report()

    def _deliver(self, data: bytes) -> None:
        assert self.replica is not None
        for append in self.replica.receive(memoryview(data), self.now_ms):
            self.notes.append(f"appends offset={append.physical_offset} size={len(append.data)}")
            self.log_end = append.physical_offset + len(append.data)
        self._report()

    def _report(self) -> None:
        assert self.replica is not None
        report = self.replica.appended(self.log_end, self.now_ms)
        if report is not None:
            self.notes.append(f"reports {int.from_bytes(report, 'big')}")


def _settings(options: dict[str, str]) -> ReplicationSettings:
    settings = ReplicationSettings(batch_bytes_max=int(options.get("batch", "1000")))
    if "per-second" in options:
        settings = replace(settings, flow_control=True, bytes_per_second_max=int(options["per-second"]))
    return settings


def test_there_are_transcripts():
    assert len(TRANSCRIPTS) >= 15


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path):
    stage, expected, said = Stage(), [], True
    for line in path.read_text().splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if line == "----":
            said, expected = False, []
            continue
        if line == "====":  # the next exchange of the same transcript
            assert stage.notes == expected
            stage.notes, said, expected = [], True, []
            continue
        if said:
            stage.run(line)
        else:
            expected.append(line)
    assert stage.notes == expected
