"""`twinlog exporter` as a service: where probes ask, and what they get."""

import re
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from twinlog.cli.exporter import probe


def test_it_is_ready_once_there_are_metrics():
    assert probe("/health", is_ready=False) == (200, b'{"status": "up"}\n')
    assert probe("/readiness", is_ready=False) == (503, b'{"status": "no metrics yet"}\n')
    assert probe("/readiness", is_ready=True) == (200, b'{"status": "up"}\n')
    assert probe("/other", is_ready=True) is None


@pytest.mark.timeout(120)
def test_a_running_exporter_answers_probes_and_scrapes(twinlog_broker_session):
    command = [
        sys.executable,
        "-m",
        "twinlog.cli.main",
        "exporter",
        "--port",
        "0",
        "-n",
        twinlog_broker_session.namesrv,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.fullmatch(r"twinlog exporter ready on (http://.*)/metrics\n", line)
            assert found is not None, line
            for path in ("/health", "/readiness", "/metrics"):
                with urllib.request.urlopen(found[1] + path, timeout=30) as answer:
                    assert answer.status == 200
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(found[1] + "/other", timeout=30)
        finally:
            process.terminate()
    assert process.returncode == 0
