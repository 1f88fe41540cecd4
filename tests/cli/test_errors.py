"""Mistakes of everyday life: each message names what is wrong and what was probably meant, and the command fails."""

import asyncio

import pytest
from tests.replication.cluster import running_cluster
from typer.testing import CliRunner

from twinlog.broker.embedded import EmbeddedBroker
from twinlog.cli.admin.app import run as run_admin
from twinlog.cli.consume import run as consume
from twinlog.cli.main import app
from twinlog.cli.shared.explain import did_you_mean

CLUSTER = "DefaultCluster"


@pytest.fixture
def failing(twinlog_broker_session, capsys):
    """Runs an admin command that fails; its message."""

    def call(*words: str, code: int = 1, names: str = twinlog_broker_session.namesrv) -> str:
        capsys.readouterr()
        try:
            assert run_admin([*words, "-n", names]) == code
        except SystemExit as stopped:  # argparse's
            assert stopped.code == code
        return capsys.readouterr().err

    return call


def test_a_broker_given_as_a_name_server_is_named_as_such(failing, twinlog_broker_session):
    broker, names = twinlog_broker_session.address, twinlog_broker_session.namesrv
    for words in (["topicList"], ["clusterList"], ["topicRoute", "-t", "T"]):
        error = failing(*words, names=broker)
        assert f"{broker} is a broker, not a name server; it registers with {names}, so give -n '{names}'" in error


def test_a_name_server_given_as_a_broker_is_named_as_such(failing, twinlog_broker_session):
    names = twinlog_broker_session.namesrv
    for words in (["brokerStatus", "-b", names], ["updateTopic", "-t", "T", "-b", names]):
        error = failing(*words)
        assert f"{names} is a name server, not a broker; its brokers are: {twinlog_broker_session.address} (" in error


async def test_the_ha_port_is_recognised_in_either_place(tmp_path, capsys):
    async with running_cluster(tmp_path) as cluster:
        broker = await cluster.start("broker")
        ha_port = f"127.0.0.1:{broker.conf.replication.listen_port}"
        words = ["brokerStatus", "-b", ha_port, "-n", cluster.names]
        assert await asyncio.to_thread(run_admin, words) == 1
        expected = f"{ha_port} is the HA port of the broker {broker.address}: only replicas connect there; give -b"
        assert expected in capsys.readouterr().err
        assert await asyncio.to_thread(run_admin, ["clusterList", "-n", ha_port]) == 1
        error = capsys.readouterr().err
        assert f"{ha_port} is the HA port of the broker" in error
        assert f"-n '{cluster.names}'" in error or "give -n the address of a name server" in error


def test_a_misspelled_topic_has_a_suggestion(failing, twinlog_broker_session):
    twinlog_broker_session.admin.create_topic("Orders")
    assert "did you mean 'Orders'?" in failing("topicStatus", "-t", "orders")
    error = failing("deleteTopic", "-t", "Order", "-c", CLUSTER)
    assert f"cluster '{CLUSTER}' has no topic 'Order'; did you mean 'Orders'?" in error
    assert did_you_mean("something else", ["Orders"]) == ""


def test_a_configuration_key_that_nothing_reads_has_a_suggestion_and_is_not_sent(failing, twinlog_broker_session):
    address = twinlog_broker_session.address
    error = failing("updateBrokerConfig", "-b", address, "-k", "fileReservedTim", "-v", "9")
    assert f"nothing reads 'fileReservedTim' on {address}: there is no such key" in error
    assert "did you mean 'fileReservedTime'?" in error


def test_a_permission_is_a_sum_of_read_write_and_inherit(failing):
    for name, more in (("updateTopic", ["-c", CLUSTER]), ("updateTopicPerm", ["-c", CLUSTER])):
        error = failing(name, "-t", "T", *more, "-p", "9", code=2)
        assert "'9' is not a permission: write 6 for read and write" in error


def test_a_topic_without_permission_is_said_to_have_none(failing, twinlog_broker_session, capsys, monkeypatch):
    names, address = twinlog_broker_session.namesrv, twinlog_broker_session.address
    twinlog_broker_session.admin.create_topic("ReadOnly", perm=4)
    twinlog_broker_session.admin.create_topic("WriteOnly", perm=2)
    error = failing("sendMessage", "-t", "ReadOnly", "-p", "x")
    assert f"topic 'ReadOnly' has permission 4 on {address}: read only; change it with" in error
    for words in ([], ["-g", "forbidden-readers"]):
        assert consume(["-t", "WriteOnly", "-n", names, "--idle", "5", *words]) == 1
        assert "topic 'WriteOnly' has permission 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("borker", "there is no command 'borker'; did you mean 'broker'?"),
        ("clusterList", "there is no command 'clusterList'; did you mean 'twinlog admin clusterList'?"),
        ("pipeline sycn", "there is no command 'sycn'; did you mean 'sync'?"),
    ],
)
def test_a_command_that_does_not_exist_has_the_likely_one_named(words, expected):
    done = CliRunner().invoke(app, words.split(), env={"COLUMNS": "120"})
    assert done.exit_code == 2 and expected in done.stderr


def test_a_name_server_that_is_not_there_is_one_question(failing, free_tcp_port_factory):
    address = f"127.0.0.1:{free_tcp_port_factory()}"
    error = failing("clusterList", names=address)
    assert f"no name server of {address} answers (cannot connect to {address}: Connection refused); is" in error
    assert error.count("?") == 1 and "Errno" not in error


def test_an_unknown_command_has_a_suggestion(failing, capsys):
    assert run_admin(["topiclst"]) == 2
    assert "there is no command 'topiclst'; did you mean 'topicList'?" in capsys.readouterr().err


def test_an_account_that_may_not_consume_is_told_so_instead_of_waiting(capsys):
    settings = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": '{"username":"root","password":"rootsecret"}',
        "innerClientAuthenticationCredentials": '{"accessKey":"root","secretKey":"rootsecret"}',
    }
    with EmbeddedBroker(settings=settings) as broker:
        names, address = broker.namesrv_address, broker.broker_address
        root = ["-n", names, "--access-key", "root", "--secret-key", "rootsecret"]
        for words in (
            f"updateTopic -t Secret -b {address}",
            f"createUser -u ann -p annsecret -b {address}",
            f"createAcl -s User:ann -r Topic:Secret -a Pub -d Allow -b {address}",
        ):
            assert run_admin([*words.split(), *root]) == 0
        ann = ["-n", names, "--access-key", "ann", "--secret-key", "annsecret"]
        assert consume(["-t", "Secret", "-g", "readers", "--idle", "20", *ann]) == 1
        assert "NO_PERMISSION" in (error := capsys.readouterr().err) and "refused" in error, error
