import asyncio
import contextlib
import socket
import ssl

import pytest

from twinlog.net.connection import ConnectionOptions
from twinlog.net.errors import ConnectFailed, ConnectionLost, RequestRefused, RequestTimeout
from twinlog.net.pool import ConnectionPool, connect
from twinlog.net.server import Server
from twinlog.wire.command import BINARY, Command, decode_command, encode_command
from twinlog.wire.frame import FRAME_BYTES_MAX, take_frame

ECHO, FAIL, REFUSE, LATER, NEVER, HUGE, COUNT = 10, 11, 12, 13, 14, 15, 16


def _fail(request):
    raise ZeroDivisionError("on purpose")


def _refuse(request):
    raise RequestRefused(17, "no such topic", {"why": "test"})


HANDLERS = {
    ECHO: lambda request: request.reply(fields=request.fields, body=request.body),
    FAIL: _fail,
    REFUSE: _refuse,
    NEVER: lambda request: None,
    HUGE: lambda request: request.reply(body=bytes(FRAME_BYTES_MAX)),
}


@pytest.fixture
async def server():
    server = Server(HANDLERS, idle_ms_max=60_000)
    await server.start("127.0.0.1", 0)
    yield server
    await server.stop()


@pytest.fixture
async def pool():
    pool = ConnectionPool()
    yield pool
    await pool.close()


def address(server: Server) -> str:
    return f"127.0.0.1:{server.port}"


async def talk(server: Server, data: bytes, frames: int = 1) -> list[Command]:
    """Send raw bytes; the answers until there are `frames` of them or the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(data)
    buffer, answers = bytearray(), []
    with contextlib.suppress(ConnectionResetError):  # closed with our bytes unread
        async with asyncio.timeout(5):
            while len(answers) < frames and (chunk := await reader.read(65536)):
                buffer += chunk
                while frame := take_frame(buffer):
                    answers.append(decode_command(frame))
    writer.close()
    return answers


async def test_a_request_gets_its_own_answer_among_many(server, pool):
    async def ask(number: int) -> bool:
        answer = await pool.request(address(server), ECHO, {"n": str(number)}, b"x" * number)
        return answer.fields == {"n": str(number)} and (answer.body or b"") == b"x" * number

    assert all(await asyncio.gather(*(ask(number) for number in range(200))))
    assert len(pool.live()) == 1


async def test_an_answer_overtakes_one_that_takes_longer_and_each_reaches_its_own_request(pool):
    handled, order, gate = [], [], asyncio.Event()

    def later(request):
        handled.append("later")
        return answered_later(request)

    async def answered_later(request):
        await gate.wait()
        return request.reply(body=b"late")

    def quick(request):
        handled.append("quick")
        gate.set()  # a server that answered one request after the other would never come here
        return request.reply(body=b"quick")

    async def ask(code: int, body: bytes) -> None:
        answer = await pool.request(address(server), code)
        assert answer.body == body
        order.append(body)

    server = Server({LATER: later, ECHO: quick})
    await server.start("127.0.0.1", 0)
    try:
        await asyncio.gather(ask(LATER, b"late"), ask(ECHO, b"quick"))
    finally:
        await server.stop()
    assert handled == ["later", "quick"] and order == [b"quick", b"late"]


async def test_unknown_codes_failures_and_refusals_are_answers(server, pool):
    unknown = await pool.request(address(server), 9999)
    assert (unknown.code, unknown.remark) == (3, " request type 9999 not supported")
    failed = await pool.request(address(server), FAIL)
    assert failed.code == 1 and "ZeroDivisionError: on purpose" in (failed.remark or "")
    refused = await pool.request(address(server), REFUSE)
    assert (refused.code, refused.remark, refused.fields) == (17, "no such topic", {"why": "test"})


async def test_an_answer_too_large_for_a_frame_becomes_an_error(server, pool):
    answer = await pool.request(address(server), HUGE)
    assert answer.code == 1 and "pages" in (answer.remark or "")


async def test_a_frame_of_almost_the_limit_passes(server, pool):
    body = bytes(FRAME_BYTES_MAX - 1000)
    assert (await pool.request(address(server), ECHO, body=body, timeout_ms=20_000)).body == body


async def test_silence_is_a_timeout_that_names_peer_and_code(server, pool):
    with pytest.raises(RequestTimeout, match=rf"127.0.0.1:{server.port} did not answer request {NEVER} within 30 ms"):
        await pool.request(address(server), NEVER, timeout_ms=30)


async def test_requests_of_one_turn_of_the_loop_leave_in_few_writes(server, pool, monkeypatch):
    connection = await pool.get(address(server))
    writes, write = [], connection._write
    monkeypatch.setattr(connection, "_write", lambda buffers: (writes.append(len(buffers)), write(buffers)))
    asked = [connection.request(ECHO, {"n": str(number)}) for number in range(50)]
    answers = await asyncio.gather(*asked)
    assert [answer.fields for answer in answers] == [{"n": str(number)} for number in range(50)]
    assert writes == [1, 49], "the first at once, the others together"
    writes.clear()
    await connection.request(ECHO)
    assert writes == [1]


async def test_what_is_gathered_leaves_before_a_later_oneway_and_before_the_close(server, monkeypatch):
    seen = []
    server._options.handlers = {ECHO: lambda request: seen.append((request.fields or {})["n"]) or request.reply()}
    connection = await connect(address(server), ConnectionOptions())
    asked = [asyncio.ensure_future(connection.request(ECHO, {"n": str(number)})) for number in range(3)]
    await asyncio.sleep(0)
    connection.oneway(ECHO, {"n": "oneway"})
    asked += [asyncio.ensure_future(connection.request(ECHO, {"n": "last"}))]
    await asyncio.gather(*asked)
    late = asyncio.ensure_future(asyncio.gather(*(connection.request(ECHO, {"n": f"late-{i}"}) for i in range(2))))
    await asyncio.sleep(0)
    assert connection._gathered, "the last one has not left yet"
    connection.close("test")
    await asyncio.gather(late, return_exceptions=True)
    async with asyncio.timeout(5):
        while len(seen) < 7:
            await asyncio.sleep(0.005)
    assert seen == ["0", "1", "2", "oneway", "last", "late-0", "late-1"]


async def test_a_lost_connection_fails_those_who_wait_and_the_next_request_opens_another(server, pool):
    waiting = asyncio.create_task(pool.request(address(server), NEVER))
    await pool.request(address(server), ECHO)
    for connection in list(server.connections):
        connection.close("test")
    with pytest.raises(ConnectionLost):
        await waiting
    assert (await pool.request(address(server), ECHO)).code == 0


async def test_an_address_without_a_listener_is_named(unused_tcp_port, pool):
    with pytest.raises(ConnectFailed, match=f"127.0.0.1:{unused_tcp_port}"):
        await pool.get(f"127.0.0.1:{unused_tcp_port}")


async def test_a_oneway_request_is_handled_and_never_answered(server):
    handled = []
    server._options.handlers = {**HANDLERS, FAIL: lambda request: handled.append(request.opaque) or _fail(request)}
    oneway = encode_command(Command(FAIL, 1, flag=2))
    answers = await talk(server, oneway + b"".join(encode_command(Command(ECHO, n)) for n in (2, 3)), 2)
    assert handled == [1] and [answer.opaque for answer in answers] == [2, 3]


async def test_many_frames_in_one_segment_are_answered_in_order(server):
    data = b"".join(encode_command(Command(ECHO, 1000 - n, body=b"%d" % n), n % 2) for n in range(50))
    answers = await talk(server, data, 50)
    assert [(answer.opaque, answer.body) for answer in answers] == [(1000 - n, b"%d" % n) for n in range(50)]


async def test_an_answer_is_json_even_to_a_binary_request(server):
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(encode_command(Command(ECHO, 5), BINARY))
    frame = take_frame(bytearray(await reader.read(1000)))
    assert frame is not None and frame.header_type == 0
    writer.close()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff" * 4,
        b"\x00\x00\x00\x06\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x08\x05\x00\x00\x00abcd",
        b"PROXY TCP4 nonsense\r\n",
    ],
)
async def test_what_is_not_remoting_is_closed_and_others_continue(server, pool, data):
    assert await talk(server, data) == []
    assert (await pool.request(address(server), ECHO)).code == 0


async def test_a_response_without_a_request_is_ignored(server):
    answers = await talk(server, encode_command(Command(0, 77, flag=1)) + encode_command(Command(ECHO, 1)))
    assert [answer.opaque for answer in answers] == [1]


@pytest.mark.parametrize(("proxies", "seen_as"), [("10.0.0.0/8;127.0.0.1", [("203.0.113.7", 5555)]), ("10.0.0.1", [])])
async def test_a_proxy_line_names_the_true_peer_if_it_comes_from_a_named_proxy(proxies, seen_as):
    """Seen to fail: without the check of proxies, anybody could be 203.0.113.7."""
    seen = []
    server = Server(HANDLERS, proxies=proxies)
    await server.start("127.0.0.1", 0)
    server._options.handlers = {ECHO: lambda request: seen.append(request.connection.peer) or request.reply()}
    await talk(server, b"PROXY TCP4 203.0.113.7 10.0.0.1 5555 10911\r\n" + encode_command(Command(ECHO, 1)))
    await server.stop()
    assert seen == seen_as


@pytest.mark.parametrize("first", [b"PROXY TCP4 203.0.113.7 10.0.0.1 5555 10911\r\n", b"PROXY UNKNOWN\r\n"])
async def test_a_client_behind_a_proxy_cannot_name_itself(first):
    """Only the first line is the proxy's. Seen to fail: the client was taken for 127.0.0.1, and so for an operator."""
    seen = []
    server = Server(HANDLERS, proxies="127.0.0.1")
    await server.start("127.0.0.1", 0)
    server._options.handlers = {ECHO: lambda request: seen.append(request.connection.peer) or request.reply()}
    by_client = b"PROXY TCP4 127.0.0.1 127.0.0.1 5555 10911\r\n" + encode_command(Command(ECHO, 1))
    assert await talk(server, first + by_client) == []
    await server.stop()
    assert seen == []


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no port for both families")
async def test_a_peer_of_ipv4_is_one_on_a_port_for_both_families():
    """A rule for 10.0.0.0/8 holds there, too. Seen to fail: the peer was ::ffff:127.0.0.1."""
    seen = []
    server = Server({ECHO: lambda request: seen.append(request.connection) or request.reply()})
    await server.start("::", 0)
    await talk(server, encode_command(Command(ECHO, 1)))
    await server.stop()
    assert [(one.peer[0], one.local_host) for one in seen] == [("127.0.0.1", "127.0.0.1")]


async def test_the_server_asks_its_client_on_the_same_connection(server):
    options = ConnectionOptions(handlers={COUNT: lambda request: request.reply(body=b"42")})
    client = await connect(address(server), options)
    await client.request(ECHO)  # a server looks at the first bytes before it knows its peer
    (connection,) = server.connections
    assert (await connection.request(COUNT)).body == b"42"


async def test_tls_without_a_certificate_is_refused_and_clear_text_works(server, pool):
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    with pytest.raises(ConnectFailed):
        await ConnectionPool(tls=trusting).get(address(server))
    assert (await pool.request(address(server), ECHO)).code == 0


async def test_a_port_in_use_is_named(server):
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{server.port}"):
        await Server({}).start("127.0.0.1", server.port)


async def test_a_silent_connection_is_closed_after_its_time():
    server = Server({}, idle_ms_max=50)
    await server.start("127.0.0.1", 0)
    reader, _ = await asyncio.open_connection("127.0.0.1", server.port)
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    await server.stop()


async def test_a_peer_that_does_not_read_stops_being_read(server):
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(slow, ("127.0.0.1", server.port))
    request = encode_command(Command(ECHO, 1, body=bytes(1 << 20)))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            for _ in range(64):
                await loop.sock_sendall(slow, request)
    slow.close()


async def test_a_request_that_the_system_fails_is_logged_in_one_line(caplog):
    def full(_):
        raise OSError(28, "No space left on device", "/data/topics.json")

    server = Server({10: full})
    await server.start("127.0.0.1", 0)
    try:
        answer = await ConnectionPool().request(f"127.0.0.1:{server.port}", 10)
        assert answer.code == 1 and answer.remark.endswith("No space left on device: '/data/topics.json'")
    finally:
        await server.stop()
    assert "/data/topics.json" in caplog.text and "Traceback" not in caplog.text


@pytest.mark.parametrize("loop_kind", ["asyncio", "uvloop"])
@pytest.mark.parametrize("where", ["fast", "after_batch"])
def test_an_unexpected_failure_costs_one_connection_and_one_line(loop_kind, where, caplog):
    def fail(*_: object) -> int:
        raise ZeroDivisionError("on purpose")

    async def ask() -> None:
        server = Server(HANDLERS, **{where: fail})
        await server.start("127.0.0.1", 0)
        try:
            answers = await talk(server, encode_command(Command(ECHO, 1)), frames=2)
            assert len(answers) == (where == "after_batch")
        finally:
            await server.stop()

    factory = None if loop_kind == "asyncio" else pytest.importorskip("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(ask())
    assert [record.getMessage() for record in caplog.records if "closing a connection" in record.getMessage()]
    assert "data_received" not in "".join(record.getMessage() for record in caplog.records)


async def test_answers_before_a_broken_frame_still_leave(server):
    broken = encode_command(Command(ECHO, 2)).replace(b'"JAVA"', b"[     ")
    assert [one.opaque for one in await talk(server, encode_command(Command(ECHO, 1)) + broken, frames=2)] == [1]


async def test_who_waits_for_a_connection_gets_an_error_when_the_pool_closes(pool):
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as clients:
        for _ in range(4):  # a full backlog: no further connection is accepted or refused
            client = clients.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        waiting = asyncio.ensure_future(pool.get(f"127.0.0.1:{full.getsockname()[1]}"))
        await asyncio.sleep(0.05)
        await pool.close()
        with pytest.raises(ConnectFailed, match="the pool is closing"):
            await waiting
