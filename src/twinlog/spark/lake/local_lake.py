"""A directory of the operating system."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from twinlog.base.atomic_file import replace_file, sync_directory, sync_file
from twinlog.spark.lake.address import Address
from twinlog.spark.lake.errors import LakeError, NotThere
from twinlog.spark.lake.lake import Entry, check_name

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


@dataclass(frozen=True, slots=True)
class LocalLake:
    """Files get the modes that the umask leaves, as those of a table that belongs to a team."""

    root: Address

    @property
    def in_tasks(self) -> bool:
        return True

    def read(self, name: str) -> bytes | None:
        with self._errors(name):
            try:
                return self._path(name).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def write(self, name: str, data: bytes) -> None:
        path = self._path(name)
        with self._errors(name):
            replace_file(path, [data], None, temporary=_aside(path))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        aside = _aside(path)
        with self._errors(name):
            replace_file(aside, [data], None)
            try:
                os.link(aside, path)
            except FileExistsError:
                return self.read(name) == data
            finally:
                aside.unlink(missing_ok=True)
            sync_directory(path.parent)
            return True

    def list(self, prefix: str = "", count_max: int | None = None) -> list[Entry]:
        folder = prefix.rpartition("/")[0]
        with self._errors(prefix):
            found = (entry for entry in self._walk(self.root.local / folder) if entry.name.startswith(prefix))
            return sorted(found)[:count_max]

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with self._errors(name), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                path = self._path(name)
                path.unlink()
                self._remove_empty(path.parent)

    def move(self, old: str, new: str) -> None:
        source, target = self._path(old), self._path(new)
        with self._errors(old):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.rename(source, target)
            except FileNotFoundError:
                if not target.exists():
                    raise NotThere(self.root / old) from None
            else:
                self._sync_up(target.parent)
                self._remove_empty(source.parent)

    def check_exclusive(self, name: str) -> None:
        """Nothing to check: a name is given once."""

    def table_file(self, name: str) -> tuple[FileSystem, str]:
        from pyarrow.fs import LocalFileSystem

        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return LocalFileSystem(), str(path)

    def make_durable(self, name: str) -> None:
        path = self._path(name)
        with self._errors(name):
            try:
                sync_file(path)
            except FileNotFoundError:
                raise NotThere(self.root / name) from None
            self._sync_up(path.parent)

    def _sync_up(self, folder: Path) -> None:
        """Make the names in a folder durable, and those of the folders above it: they may be new as well."""
        sync_directory(folder)
        if folder != self.root.local:
            self._sync_up(folder.parent)

    def _path(self, name: str) -> Path:
        return self.root.local / check_name(name)

    def _walk(self, folder: Path) -> Iterator[Entry]:
        try:
            entries = list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(Path(entry.path))
            elif not entry.name.endswith(_ASIDE):
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    name = Path(entry.path).relative_to(self.root.local).as_posix()
                    yield Entry(name, entry.stat().st_size)

    def _remove_empty(self, folder: Path) -> None:
        """A store of objects has no empty folders; neither does this one, or they would look like partitions."""
        with contextlib.suppress(OSError):
            while folder != self.root.local:
                folder.rmdir()
                folder = folder.parent

    @contextlib.contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LakeError(self.root / name, error.strerror or str(error)) from error


_ASIDE = ".aside"


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}{_ASIDE}")
