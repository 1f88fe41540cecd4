"""The error when a server cannot start: the value, the next step, and never a traceback."""

import errno
import os
import socket

import pytest
from typer.testing import CliRunner

from twinlog.broker.ports import free_port
from twinlog.cli.main import app
from twinlog.net.errors import CannotListen


def start(*arguments):
    done = CliRunner().invoke(app, arguments, env={"TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "200"})
    assert isinstance(done.exception, SystemExit), done.exception  # anything else would be a traceback
    return done.exit_code, done.stderr


def broker(tmp_path, text=""):
    path = tmp_path / "b.conf"
    path.write_text(f"bindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\nstorePathRootDir={tmp_path}/store\n{text}")
    return start("broker", "-c", str(path), "--log-level", "error")


@pytest.mark.parametrize("port", [1, 2, 65535])
def test_a_port_needs_room_for_its_neighbours(tmp_path, port):
    code, text = broker(tmp_path, f"listenPort={port}\n")
    assert code == 1
    assert f"b.conf:4: listenPort={port} leaves no room for the ports beside it; choose 3 to 65534" in text


def test_a_port_in_use_is_named_with_the_setting_that_moves_it(tmp_path):
    port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        code, text = broker(tmp_path, f"listenPort={port}\n")
        assert code == 1
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use; stop what listens there, or choose" in text


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.EADDRINUSE, "stop what listens there, or choose another listenPort"),
        (errno.EADDRNOTAVAIL, "set bindAddress to an address of this machine"),
        (errno.EACCES, "choose a listenPort above 1023"),
    ],
)
def test_every_reason_not_to_get_a_port_has_its_own_next_step(number, hint):
    error = CannotListen("192.0.2.1", 80, OSError(number, os.strerror(number)))
    assert error.errno == number
    assert str(error).startswith("cannot listen on 192.0.2.1:80: ") and hint in str(error)


def test_a_certificate_that_is_not_there_is_named(tmp_path):
    tls = "tls.test.mode.enable=false\ntls.server.certPath=/nope.pem\ntls.server.keyPath=/nope.key\nlistenPort=0\n"
    code, text = broker(tmp_path, tls)
    assert code == 1 and "/nope.pem" in text


def test_a_store_that_cannot_be_is_named_with_its_setting(tmp_path):
    (tmp_path / "store").write_text("a file")
    code, text = broker(tmp_path)
    assert code == 1
    assert f"the store in {tmp_path}/store cannot be opened" in text and "check storePathRootDir" in text


@pytest.mark.parametrize("port", ["99999", "-1", "many"])
def test_an_invalid_port_is_named(port):
    code, text = start("namesrv", f"--port={port}")
    assert code == 2 and f"'{port}' is not a port; give a number from 0 to 65535" in text
