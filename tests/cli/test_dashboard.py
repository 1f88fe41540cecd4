"""`twinlog dashboard`: what it refuses to start with, in one line."""

import pytest

from twinlog.cli.dashboard import main

NOBODY = ["-n", "127.0.0.1:1", "--no-open", "--port", "0"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--host", "0.0.0.0"], "no broker of 127.0.0.1:1 answers"),
        (["--https-cert", "x.pem"], "--https-cert and --https-key go together"),
        (["--https-cert", "x.pem", "--https-key", "y.pem"], "--https-cert x.pem and --https-key y.pem cannot be used"),
        (["--host", "192.0.2.1", "--read-only"], "cannot listen on 192.0.2.1:0"),
        (["--failover-conf", "missing.conf"], "missing.conf"),
    ],
)
def test_a_wrong_option_is_one_line_that_names_it(words, says, capsys):
    assert main([*NOBODY, *words]) == 1
    error = capsys.readouterr().err
    assert says in error and "Traceback" not in error


def test_a_port_that_is_none_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--port", "99999"])
    assert "'99999' is not a port" in capsys.readouterr().err
