"""What every lake promises, for a directory and for a real S3 server."""

import pickle
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from twinlog.spark.lake.address import parse_address
from twinlog.spark.lake.errors import NotThere
from twinlog.spark.lake.lake import Entry
from twinlog.spark.lake.local_lake import LocalLake


@pytest.fixture(params=["local", "s3"])
def lake(request, tmp_path):
    if request.param == "local":
        return LocalLake(parse_address(tmp_path / "lake", "test"))
    return request.getfixturevalue("s3").lake("some/path")


def test_files_are_written_read_listed_and_deleted(lake):
    assert lake.read("a/b.json") is None
    assert lake.list() == []
    lake.write("a/b.json", b"one")
    lake.write("a/b.json", b"two!")
    lake.write("a/c/d", b"")
    lake.write("other", b"x")
    assert (lake.read("a/b.json"), lake.read("a/c/d")) == (b"two!", b"")
    assert lake.list() == [Entry("a/b.json", 4), Entry("a/c/d", 0), Entry("other", 1)]
    assert lake.list("a/") == [Entry("a/b.json", 4), Entry("a/c/d", 0)]
    assert lake.list("a/b") == [Entry("a/b.json", 4)]
    assert lake.list("o") == [Entry("other", 1)]
    assert lake.list("none/") == []
    assert [entry.name for entry in lake.list(count_max=2)] == ["a/b.json", "a/c/d"]
    lake.delete(["a/b.json", "a/c/d", "a/never"])
    assert [entry.name for entry in lake.list()] == ["other"]


def test_a_name_is_given_once(lake):
    lake.write("header", b"{}")
    lake.check_exclusive("header")
    assert lake.put_if_absent("n/1", b"mine")
    assert lake.put_if_absent("n/1", b"mine"), "an answer was lost and the put repeated"
    assert not lake.put_if_absent("n/1", b"yours")
    assert lake.read("n/1") == b"mine"
    won = []

    def take(number: int) -> None:
        if lake.put_if_absent("n/2", b"%d" % number):
            won.append(number)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [b"%d" % number for number in won] == [lake.read("n/2")]


def test_a_move_may_be_repeated(lake):
    lake.write("staged/one", b"1")
    lake.move("staged/one", "table/one")
    lake.move("staged/one", "table/one")
    assert (lake.read("staged/one"), lake.read("table/one")) == (None, b"1")
    with pytest.raises(NotThere, match="staged/two: there is no such file"):
        lake.move("staged/two", "table/two")


def test_a_table_is_written_and_read_in_another_process(lake):
    far = pickle.loads(pickle.dumps(lake))
    files, path = far.table_file("t/part.staged")
    pq.write_table(pa.table({"n": [1, 2, 3]}), path, filesystem=files)
    lake.move("t/part.staged", "t/part.parquet")
    files, path = lake.table_file("t/part.parquet")
    assert pq.read_table(path, filesystem=files)["n"].to_pylist() == [1, 2, 3]
