"""A proxy in front of the S3 server that refuses, delays, cuts or forgets."""

from __future__ import annotations

import http.client
import http.server
import re
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field

_HOP = ("Transfer-Encoding", "Content-Length", "Expect", "Connection")
Fault = Callable[["Request"], "Answer | None"]


@dataclass(frozen=True)
class Request:
    method: str
    path: str  # with its query
    number: int  # of all requests so far

    @property
    def is_listing(self) -> bool:
        return "list-type=2" in self.path


@dataclass(frozen=True)
class Answer:
    """What happens instead; without a status the server's own answer is changed."""

    status: int = 0
    code: str = ""  # without one the body is empty
    delay_s: float = 0.0
    forget: str = ""  # keys with this text are left out of a listing
    cut: bool = False  # half of the body, and the connection is closed
    lose: bool = False  # the server did it, and its answer is lost


@dataclass
class FaultyProxy:
    endpoint: str
    fault: Fault = lambda _: None
    seen: list[Request] = field(default_factory=list)


@contextmanager
def faulty_proxy(server: str):
    """A proxy for this endpoint; set `fault` of what it yields."""
    host = server.partition("//")[2]

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.body()
            request = Request(self.command, self.path, len(proxy.seen))
            proxy.seen.append(request)
            answer = proxy.fault(request) or Answer()
            time.sleep(answer.delay_s)
            if answer.status:
                text = f"<Error><Code>{answer.code}</Code><Message>injected</Message></Error>" if answer.code else ""
                self.reply(answer.status, {"Content-Type": "application/xml"}, text.encode())
                return
            ahead = http.client.HTTPConnection(host)
            sent = {name: value for name, value in self.headers.items() if name not in _HOP}
            ahead.request(self.command, self.path, body, sent)
            found = ahead.getresponse()
            data = found.read()
            ahead.close()
            if answer.lose:
                self.close_connection = True
                return
            if answer.forget:
                entry = rf"<Contents>(?:(?!</Contents>).)*{answer.forget}.*?</Contents>"
                data = re.sub(entry, "", data.decode(), flags=re.DOTALL).encode()
            self.reply(found.status, dict(found.getheaders()), data, cut=answer.cut)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

        def body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = b""
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                found += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return found

        def reply(self, status: int, headers: dict[str, str], body: bytes, *, cut: bool = False) -> None:
            self.send_response(status)
            left_out = ("content-length", "transfer-encoding", "connection", "date", "server")
            length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
            for name, value in headers.items():
                if name.lower() not in left_out:
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body[: len(body) // 2] if cut else body)
            self.close_connection = cut

        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that does not wait any longer is not an error of the proxy."""

    serving = Server(("127.0.0.1", 0), Handler)
    proxy = FaultyProxy(f"http://127.0.0.1:{serving.server_port}")
    thread = threading.Thread(target=serving.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        serving.shutdown()
        serving.server_close()
        thread.join()
