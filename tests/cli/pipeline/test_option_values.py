"""What the words of the pipeline's options mean, and how wrong ones are refused."""

import pytest
from typer.testing import CliRunner

pytest.importorskip("pyspark")

from twinlog.cli.main import app
from twinlog.cli.pipeline.option_values import cluster_options, moment_ms, names, source_options
from twinlog.cli.shared.connecting import Access
from twinlog.client import Credentials


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("archive /tmp/none", "a name server or store directories"),
        ("archive /tmp/none -n a:1 --format parkett", "did you mean 'parquet'"),
        ("archive /tmp/none -n a:1 --every soon", "every is 'soon'"),
        ("archive /tmp/none -n a:1 --every 0s", "is not a time"),
        ("archive /tmp/none -n a:1 --option readFrom", "is not KEY=VALUE"),
        ("archive /tmp/none -n a:1 -t T --option readForm=slave", "did you mean 'readFrom'"),
        ("archive /tmp/none --store /tmp/no-such-store", "there is no store directory"),
        ("compact /tmp/no-such-archive", "there is no archive"),
        ("compact /tmp --before yesterday", "is not a day"),
        ("compact /", "is not an archive, it holds"),
        ("restore -n a:1 -t T", "an archive or store directories"),
        ("restore -n a:1 -t T --archive /tmp/no-such-archive", "there is no archive"),
        ("restore -n a:1 -t T --archive /a --rename T", "is not OLD=NEW"),
        ("restore -n a:1 -t T --archive /a --option failOnDataLoss=false", "an option of stores: give it together"),
        ("restore -n a:1 -t T --store /a --option failOnDataLos=false", "did you mean 'failOnDataLoss'"),
        ("restore -n a:1 -t T --archive /a --from-time noon", "is not a time"),
    ],
)
def test_wrong_words_end_the_command_before_spark_starts(line, text):
    done = CliRunner().invoke(app, ["pipeline", *line.split()])
    assert done.exit_code == 1
    assert text in " ".join(done.stderr.split())


def test_times_are_those_of_utc_unless_they_say_otherwise():
    assert moment_ms("1000", "--from-time") == 1000
    assert moment_ms("1970-01-02", "--from-time") == 86_400_000
    assert moment_ms("1970-01-01T01:00+01:00", "--from-time") == 0
    assert moment_ms(None, "--from-time") is None


def test_options_and_keys_reach_the_source(monkeypatch):
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "me")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "mine")
    assert source_options(["readFrom = any"], Access(secret_key="other")) == {
        "accessKey": "me",
        "secretKey": "other",
        "readFrom": "any",
    }
    assert names(["a, b", "c", ""]) == ("a", "b", "c")


def test_tls_reaches_the_source_and_an_option_of_the_source_counts_more(monkeypatch):
    monkeypatch.delenv("ROCKETMQ_ACCESS_KEY", raising=False)
    monkeypatch.delenv("ROCKETMQ_SECRET_KEY", raising=False)
    assert source_options(None, Access()) == {}
    assert source_options(["rocketmq.tls.caFile=b.pem"], Access(tls_ca="a.pem", tls_cert="c.pem", tls_key="k.pem")) == {
        "rocketmq.useTLS": "true",
        "rocketmq.tls.caFile": "b.pem",
        "rocketmq.tls.certFile": "c.pem",
        "rocketmq.tls.keyFile": "k.pem",
    }
    assert source_options(None, Access(tls_insecure=True)) == {
        "rocketmq.useTLS": "true",
        "rocketmq.tls.verify": "false",
    }
    reached = cluster_options("a:1", Access(tls_insecure=True, access_key="me", secret_key="mine"))
    assert (reached.tls, reached.tls_verify, reached.credentials) == (True, False, Credentials("me", "mine"))
