"""A link in the place of any file that a broker or its name server writes: refused, and its target left as it was.

The files are those of a real directory, so a file that a later version adds is planted as well.
"""

import os
import shutil
import stat
from pathlib import Path

import pytest

from twinlog.broker.embedded import EmbeddedBroker
from twinlog.client import Outgoing
from twinlog.client.sync import Admin, Producer, PullConsumer

SMALL = {
    "mappedFileSizeCommitLog": str(256 * 1024),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "50",
    "maxIndexNum": "200",
    "enableConsumeQueueExt": "true",
    "mappedFileSizeConsumeQueueExt": "4096",
    "enableCalcFilterBitMap": "true",
}
NOBODY = 65534


def use(home: Path, **settings: str) -> set[str]:
    """Start, send, consume and stop; the files that were there while it ran or afterwards."""
    with EmbeddedBroker(home, {**SMALL, **settings}) as broker:
        with Producer(broker.namesrv_address, "p") as producer:
            sent = producer.send(Outgoing("T", b"one", keys=["k"], tags="A"))
            producer.send(Outgoing("T", b"later", delay_level=1))
            producer.send(Outgoing("T", b"much later", delay_ms=600_000))
        with PullConsumer(broker.namesrv_address, "c") as consumer:
            consumer.assign({sent.queue: 0})
            assert consumer.poll()
            consumer.commit()
        with Admin(broker.namesrv_address) as admin:
            admin.put_kv("N", "k", "1")
            admin.put_kv("N", "k", "2")
        running = files_in(home)
    return running | files_in(home)


def files_in(home: Path) -> set[str]:
    return {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def used(tmp_path_factory):
    home = tmp_path_factory.mktemp("used")
    names = use(home)
    assert {"store/abort", "store/lock", "store/checkpoint", "namesrv/kvConfig.json"} <= names
    assert {name.split("/")[1] for name in names} >= {"commitlog", "consumequeue", "index", "config"}
    return home, names


def planted(used, tmp_path):
    """(name, home with a link in place of that file, what the link leads to) for every name."""
    template, names = used
    beside = {f"{name}.{suffix}" for name in names if name.endswith(".json") for suffix in ("tmp", "bak", "bak.tmp")}
    for number, name in enumerate(sorted(names | beside)):
        home, victim = tmp_path / str(number), tmp_path / f"victim-{number}"
        shutil.copytree(template, home)
        shutil.copyfile(home / name, victim) if (home / name).exists() else victim.write_bytes(b"precious")
        (home / name).unlink(missing_ok=True)
        (home / name).symlink_to(victim)
        yield name, home, victim


def test_a_link_in_the_place_of_any_file_stops_the_start_and_its_target_stays(used, tmp_path):
    seen = {}
    for name, home, victim in planted(used, tmp_path):
        before = (victim.read_bytes(), victim.stat().st_mtime_ns)
        try:
            with EmbeddedBroker(home, SMALL):
                seen[name] = "it started"
        except Exception as error:
            if f"{home / name} is a symbolic link" not in str(error):
                seen[name] = str(error)
        if (victim.read_bytes(), victim.stat().st_mtime_ns) != before:
            seen[name] = "the target was changed"
        shutil.rmtree(home)
    assert seen == {}


@pytest.fixture(params=[0o022, 0o000], ids=oct)
def umask(request):
    old = os.umask(request.param)
    yield
    os.umask(old)


def modes_of(home: Path) -> tuple[set[int], set[int]]:
    """The modes of the files and of the directories in `home`."""
    found = (set(), set())
    for path in home.rglob("*"):
        found[path.is_dir()].add(stat.S_IMODE(path.stat().st_mode))
    return found


@pytest.mark.usefixtures("umask")
def test_what_a_broker_makes_is_closed_to_other_users(tmp_path):
    use(tmp_path / "home")
    assert modes_of(tmp_path / "home") == ({0o600}, {0o700})


@pytest.mark.usefixtures("umask")
def test_a_store_can_be_opened_to_a_group_that_reads_it(tmp_path):
    use(tmp_path / "home", storeFileMode="0640", storeDirectoryMode="0750")
    assert modes_of(tmp_path / "home" / "store") == ({0o640}, {0o750})


def test_files_and_directories_that_are_there_keep_their_modes(used, tmp_path):
    home = tmp_path / "home"
    shutil.copytree(used[0], home)
    for path in home.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    before = {path: path.stat().st_mode for path in home.rglob("*") if path.suffix not in (".bak", ".tmp")}
    use(home)
    assert {path: path.stat().st_mode for path in before if path.exists()} == {
        path: mode for path, mode in before.items() if path.exists()
    }


@pytest.mark.parametrize("name", ["store", "store/commitlog", "store/consumequeue", "store/config", "store/index"])
def test_directories_may_be_links_to_another_disk(used, tmp_path, name):
    home, disk = tmp_path / "home", tmp_path / "disk"
    shutil.copytree(used[0], home)
    shutil.move(home / name, disk)
    (home / name).symlink_to(disk)
    use(home)
    assert (home / name).is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
@pytest.mark.parametrize("name", ["store", "store/commitlog", "store/consumequeue", "store/config", "store/index"])
def test_directories_behind_another_users_link_are_refused(used, tmp_path, name):
    home, disk = tmp_path / "home", tmp_path / "disk"
    shutil.copytree(used[0], home)
    shutil.move(home / name, disk)
    (home / name).symlink_to(disk)
    os.chown(home / name, NOBODY, NOBODY, follow_symlinks=False)
    before = {path: path.stat().st_mtime_ns for path in disk.rglob("*") if path.is_file()}
    with pytest.raises(Exception, match=rf"{home / name} belongs to user {NOBODY}"), EmbeddedBroker(home, SMALL):
        pass
    assert {path: path.stat().st_mtime_ns for path in disk.rglob("*") if path.is_file()} == before
