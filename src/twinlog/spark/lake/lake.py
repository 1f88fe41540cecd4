"""The few operations that jobs need of a file system; see the room's description for what they promise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from twinlog.spark.lake.address import Address

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


AT_ONCE = 8  # requests to a store


class Entry(NamedTuple):
    """A file by its name below the lake's root, and its size."""

    name: str
    size: int


class Lake(Protocol):
    """A root, and names below it with slashes between their parts."""

    @property
    def root(self) -> Address: ...

    @property
    def in_tasks(self) -> bool:
        """Whether it may be pickled, and `table_file` works: otherwise only Spark itself writes and reads tables."""
        ...

    def read(self, name: str) -> bytes | None:
        """The content; None if there is no such file."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Create or replace a file in one step."""
        ...

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Create a file; False if it exists with other content."""
        ...

    def list(self, prefix: str = "", count_max: int | None = None) -> list[Entry]:
        """All files whose names begin with `prefix`, in all folders below, sorted; or the first ones of them."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Remove files; one that does not exist is not an error."""
        ...

    def move(self, old: str, new: str) -> None:
        """Give a file another name, replacing what has it; NotThere if neither name exists."""
        ...

    def check_exclusive(self, name: str) -> None:
        """LakeError if this store would let two writers both win a put_if_absent; `name` exists and stays as it is."""
        ...

    def table_file(self, name: str) -> tuple[FileSystem, str]:
        """A file system of pyarrow and the path of this file there, to write or read a table's file."""
        ...

    def make_durable(self, name: str) -> None:
        """Return when this file, which was written without `write` or `put_if_absent`, survives a power cut."""
        ...


Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """`work` for each item, some at a time: a store answers one request slowly, and many at once."""
    todo = list(items)
    if len(todo) < 2:
        return [work(one) for one in todo]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(work, todo))


def check_name(name: str) -> str:
    """A name as it is; programmer mistakes would reach outside of the root."""
    assert name and not name.startswith("/") and ".." not in name.split("/"), name
    return name
