import pytest
from tests.cli.replication.groups import groups

from twinlog.cli.replication import watch
from twinlog.cli.replication.report import MIB, Progress
from twinlog.cli.replication.watch import watch_lines
from twinlog.client import NetError


def test_a_pipe_gets_one_line_a_replica():
    (line,) = watch_lines(groups(20 * MIB, 80 * MIB), [Progress("b/1", 0, 80 * MIB, 0.0, None)])
    assert "b/1" in line and "~7 messages, 1.5 s, not in sync; catching up: 0 % of 80.0 MiB" in line
    assert "no replicas" in watch_lines([], [])[0]


@pytest.mark.parametrize("as_json", [False, True])
async def test_a_watch_shows_that_servers_stop_and_come_back(monkeypatch, capsys, as_json):
    answers = iter([groups(0, 5), NetError("cannot connect to n:1"), groups(5, 0), KeyboardInterrupt()])

    async def gather_groups(*_):
        found = next(answers)
        if isinstance(found, BaseException):
            raise found
        return found

    monkeypatch.setattr(watch, "gather_groups", gather_groups)
    with pytest.raises(KeyboardInterrupt):
        await watch.watch_groups(None, None, None, 0.0, as_json)
    first, failure, last = capsys.readouterr().out.splitlines()
    assert "b" in first and "b" in last
    assert failure == '{"error": "cannot connect to n:1"}' if as_json else "n:1; trying again" in failure


def test_a_line_shows_why_a_replica_does_not_follow():
    (group,) = groups(20 * MIB, 80 * MIB)
    group.replicas[0].document = {"following": {"state": "refused", "reason": "the logs differ"}}
    assert "b/1 refused (the logs differ), lag" in watch_lines([group], [])[0]
