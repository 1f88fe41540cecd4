"""Moves through Hadoop's file systems, with a small one in this process; tests/interop/test_hdfs.py has a real one."""

import pytest

from twinlog.spark.lake.address import parse_address
from twinlog.spark.lake.errors import LakeError, NotThere
from twinlog.spark.lake.hadoop_lake import HadoopLake


class Path:
    def __init__(self, text: str) -> None:
        self.text = text

    def getParent(self):
        return Path(self.text.rpartition("/")[0])

    def toUri(self):
        return self

    def getPath(self):
        return self.text.removeprefix("hdfs://n")


class Status:
    def __init__(self, data: bytes) -> None:
        self.getLen = lambda: len(data)


class Files:
    """As HDFS: a rename to a name that is taken, of a file that is not there, or to no folder answers false."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.folders: set[str] = set()
        self.before = lambda step: None  # each step: what another run does first

    def mkdirs(self, path):
        self.before("mkdirs")
        self.folders.add(path.text)

    def exists(self, path):
        self.before("exists")
        return path.text in self.data

    def delete(self, path, recursive):
        self.before("delete")
        return self.data.pop(path.text, None) is not None

    def rename(self, source, target):
        self.before("rename")
        if source.text not in self.data or target.text in self.data or target.getParent().text not in self.folders:
            return False
        self.data[target.text] = self.data.pop(source.text)
        return True

    def getFileStatus(self, path):
        return Status(self.data[path.text])


@pytest.fixture
def lake():
    made = HadoopLake.__new__(HadoopLake)
    made.root, made._files = parse_address("hdfs://n/a", "test"), Files()
    made._path = lambda name: Path(f"hdfs://n/a/{name}")
    made._files.data["hdfs://n/a/staged/1"] = b"one"
    return made


def test_two_runs_that_move_the_same_file_leave_it_in_its_place(lake):
    for step in range(6):
        files = lake._files
        files.data = {"hdfs://n/a/staged/1": b"one"}
        left = [step]

        def other(_, files=files, left=left):
            left[0] -= 1
            if left[0] == -1 and "hdfs://n/a/staged/1" in files.data:
                files.data["hdfs://n/a/table/1"] = files.data.pop("hdfs://n/a/staged/1")

        files.before = other
        lake.move("staged/1", "table/1")
        assert files.data == {"hdfs://n/a/table/1": b"one"}, f"the other run was quicker before step {step}"


def test_a_move_that_copied_and_was_killed_is_finished(lake):
    for left_behind in (b"one", b"o"):
        lake._files.data = {"hdfs://n/a/staged/1": b"one", "hdfs://n/a/table/1": left_behind}
        lake.move("staged/1", "table/1")
        assert lake._files.data == {"hdfs://n/a/table/1": b"one"}


def test_a_folder_that_vanishes_is_made_again_and_what_cannot_be_moved_is_named(lake):
    files = lake._files
    vanishes = iter([True])
    files.before = lambda step: files.folders.clear() if step == "rename" and next(vanishes, False) else None
    lake.move("staged/1", "table/1")
    assert files.data == {"hdfs://n/a/table/1": b"one"}
    with pytest.raises(NotThere, match="staged/2: there is no such file"):
        lake.move("staged/2", "table/2")
    files.before = lambda step: files.folders.clear() if step == "rename" else None
    with pytest.raises(LakeError, match="table/1: cannot be renamed to"):
        lake.move("table/1", "table/3")
