"""`twinlog send` and `twinlog consume`: lines in, lines out."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from twinlog.cli.consume import run as consume
from twinlog.cli.send import reader_of
from twinlog.cli.send import run as send
from twinlog.client import BadArgument, Outgoing

TWINLOG = [sys.executable, "-m", "twinlog.cli.main"]


@pytest.fixture
def broker(twinlog_broker_session):
    return twinlog_broker_session


@pytest.fixture
def piped(broker, monkeypatch, capsys):
    """Pipes text into `twinlog send`; what it reports."""

    def call(text: str, *words: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
        assert send([*words, "-n", broker.namesrv]) == code
        return capsys.readouterr().err

    return call


@pytest.fixture
def printed(broker, capsys):
    """Runs `twinlog consume`; the lines it printed."""

    def call(*words: str) -> list[bytes]:
        capsys.readouterr()
        assert consume([*words, "-n", broker.namesrv]) == 0
        return capsys.readouterr().out.encode().splitlines()

    return call


def test_lines_become_messages_and_messages_lines(piped, printed):
    report = piped("one\ntwo\r\n\nthree", "-t", "Lines")
    assert report.startswith("sent 3 messages") and "skipped 1 empty lines" in report
    assert sorted(printed("-t", "Lines", "--max", "3")) == [b"one", b"three", b"two"]


def test_one_in_flight_keeps_the_order_of_lines(piped, printed):
    lines = [f"{i}" for i in range(50)]
    piped("\n".join(lines), "-t", "InOrder", "--in-flight", "1")
    assert printed("-t", "InOrder", "--max", "50") == [line.encode() for line in lines]


def test_messages_carry_tags_keys_and_properties(piped, printed):
    piped('{"id": 7}\n', "-t", "Rich", "--tags", "a", "--key-from", "json:id", "--property", "color=red")
    (line,) = printed("-t", "Rich", "--max", "1", "--json")
    message = json.loads(line)
    assert (message["tags"], message["keys"], message["body"]) == ("a", ["7"], '{"id": 7}')
    assert message["properties"]["color"] == "red"


BODIES = ["text with \n a line, \u00e4 and \u4e16", b"\x00\xff\xfe binary", "", '{"json": "\\"quoted\\""}']
BODIES += [b"\x00" * 3_000_000]  # 18 MB of JSON


def test_what_consume_prints_as_json_send_sends_again(broker, piped, printed):
    producer = broker.producer()
    for number, body in enumerate(BODIES):
        properties = {"color": "red", "empty": "", " ": "a space", "odd \u2028": " \r\n'\""} if number else {}
        sharded = "customer 7" if number == 1 else ""
        again = Outgoing("Original", body or b" ", tags="tag", keys=[f"k{number}", "all"], properties=properties)
        again.sharding_key, again.flag = sharded, -number
        producer.send(again)
    lines = printed("-t", "Original", "--max", str(len(BODIES)), "--json")
    piped("\n".join(line.decode() for line in lines), "--json", "-t", "Copy")
    copies = printed("-t", "Copy", "--max", str(len(BODIES)), "--json")

    def told(line: bytes):
        data = json.loads(line)
        own = {name: data["properties"].get(name) for name in ("color", "empty", " ", "odd \u2028", "__SHARDINGKEY")}
        return [data.get("body"), data.get("bodyBase64"), data["tags"], data["keys"], data["flag"], own]

    assert sorted(map(told, copies), key=str) == sorted(map(told, lines), key=str)
    ids = [json.loads(line)["messageId"] for line in (*lines, *copies)]
    assert len(set(ids)) == 2 * len(BODIES), "a copy is a new message"
    assert piped(lines[0].decode(), "--json").startswith("sent 1 message"), "to its own topic"
    assert len(broker.messages("Original")) == len(BODIES) + 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("plain text", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ('{"body": 7}', "has neither body, a text, nor bodyBase64"),
        ('{"bodyBase64": "?"}', "is not base64"),
        ('{"body": "b", "keys": {"a": 1}}', "is not a list of texts"),
        ('{"body": "b", "properties": {"a": 1}}', "is not an object of texts"),
        ('{"body": "b", "flag": "1"}', "flag '1' is not a number of 32 bits"),
        ('{"body": "\\ud800"}', "half of a character in body"),
        ('{"body": "b", "tags": "\\ud800"}', "has half of a character"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_line_that_is_not_such_a_message_is_named(piped, line, problem):
    assert problem in piped(line, "--json", "-t", "Copy", code=1)


def test_options_that_contradict_json_lines_are_refused(capsys):
    for words in (["--json", "--tags", "a"], ["--json", "--key-from", "word:1"], []):
        with pytest.raises(SystemExit):
            send(words)
        assert "--json" in (error := capsys.readouterr().err) or "the topic is missing" in error


def test_lines_with_one_sharding_key_share_a_queue(piped, broker):
    piped("".join(f"user{i % 3} {i}\n" for i in range(12)), "-t", "Sharded", "--sharding-from", "word:1")
    places: dict[str, set[int]] = {}
    for message in broker.messages("Sharded"):
        places.setdefault(message.body.decode().split()[0], set()).add(message.queue_id)
    assert all(len(queues) == 1 for queues in places.values())


def test_only_the_wanted_tags_are_printed(broker, printed):
    producer = broker.producer()
    for i in range(6):
        producer.send(Outgoing("Tagged", f"{i}", tags="even" if i % 2 == 0 else "odd", properties={"n": str(i)}))
    assert sorted(printed("-t", "Tagged", "--tags", "odd", "--max", "3")) == [b"1", b"3", b"5"]
    assert sorted(printed("-t", "Tagged", "--sql", "n > 3", "--max", "2")) == [b"4", b"5"]


def test_a_group_goes_on_where_it_stopped(piped, printed):
    piped("\n".join(f"{i}" for i in range(10)), "-t", "Shared", "--in-flight", "1")
    first = printed("-t", "Shared", "--group", "readers", "--max", "4")
    rest = printed("-t", "Shared", "--group", "readers", "--max", "6")
    assert first + rest == [b"%d" % i for i in range(10)]


def test_reading_without_a_group_leaves_no_trace(piped, printed):
    piped("x\n", "-t", "Traceless")
    assert printed("-t", "Traceless", "--max", "1") == printed("-t", "Traceless", "--max", "1") == [b"x"]


def test_consuming_ends_when_nothing_comes(piped, printed):
    piped("x\n", "-t", "Idle")
    assert printed("-t", "Idle", "--idle", "0.2") == [b"x"]
    assert printed("-t", "Idle", "--from", "last", "--idle", "0.2") == []
    tomorrow = str(int(time.time() + 86_400) * 1000)
    assert printed("-t", "Idle", "--from", tomorrow, "--idle", "0.2") == []


def test_a_line_without_its_key_stops_the_command(piped):
    assert "has 1 words, word:2 needs 2" in piped("single\n", "-t", "Bad", "--key-from", "word:2", code=1)


def test_a_line_without_end_is_not_gathered_for_ever(piped, monkeypatch):
    monkeypatch.setattr("twinlog.cli.send.LINE_BYTES_MAX", 100_000)
    assert "a line has more than 100000 bytes" in piped("x" * 1_000_000, "-t", "Endless", code=1)


def test_an_invalid_pattern_is_named(capsys):
    with pytest.raises(SystemExit):
        send(["-t", "T", "--key-from", "regex:("])
    assert "'(' is not a regular expression" in capsys.readouterr().err


def test_an_unknown_topic_to_read_is_named(broker, capsys):
    assert consume(["-t", "Nowhere", "-n", broker.namesrv]) == 1
    assert "Nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("how", "line", "key"),
    [
        ("word:2", "a b c", "b"),
        ("json:id", '{"id": 5}', "5"),
        ("regex:id=(\\d+)", "x id=42", "42"),
        ("regex:\\d+", "x7", "7"),
    ],
)
def test_keys_are_taken_from_lines(how, line, key):
    assert reader_of(how)(line) == key


@pytest.mark.parametrize(
    ("how", "line"), [("word:9", "a"), ("json:id", "no json"), ("json:id", "[]"), ("regex:\\d", "x")]
)
def test_a_line_that_does_not_hold_its_key_is_an_error(how, line):
    with pytest.raises(BadArgument):
        reader_of(how)(line)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_consuming_cleanly(broker, piped, number):
    piped("x\n", "-t", "Signalled")
    command = [*TWINLOG, "consume", "-t", "Signalled", "-n", broker.namesrv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"x\n"
        os.kill(process.pid, number)
        assert (process.wait(10), process.stderr.read()) == (0, b"")


def test_a_reader_that_leaves_ends_consuming_cleanly(broker, piped):
    piped("\n".join(f"{i}" for i in range(3000)), "-t", "Broken")
    command = [*TWINLOG, "consume", "-t", "Broken", "-n", broker.namesrv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert (process.wait(10), process.stderr.read()) == (0, b"")
