"""Any file system of Hadoop, through the driver's JVM: the connector and the settings are those that Spark uses.

The exchange between writers is what each store does in one step (see `_EXCLUSIVE_CREATE`):

    hdfs, abfs, viewfs, file, ...   a file is written aside, then renamed to a name that must not exist
    gs, s3a                         a file is created under a name that must not exist, and appears when it is closed
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from twinlog.spark.errors import BadOption
from twinlog.spark.lake.address import Address
from twinlog.spark.lake.errors import LakeError, NotThere
from twinlog.spark.lake.lake import Entry, check_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXCLUSIVE_CREATE = ("gs", "s3a")
_ASIDE = "_aside"
_COPY_BYTES = 1 << 20
_TRIES = 3


class HadoopLake:
    """Lives in the driver only."""

    in_tasks = False

    def __init__(self, spark: SparkSession, root: Address) -> None:
        self.root = root
        session: Any = spark
        self._jvm = session._jvm
        conf = session._jsparkSession.sessionState().newHadoopConf()
        self._base = self._jvm.org.apache.hadoop.fs.Path(str(root) if root.path else f"{root}/")
        with self._errors(""):
            self._files = self._base.getFileSystem(conf)

    def read(self, name: str) -> bytes | None:
        from py4j.protocol import Py4JJavaError

        with self._errors(name):
            try:
                stream = self._files.open(self._path(name))
            except Py4JJavaError as error:
                if _is_missing(error):
                    return None
                raise
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def write(self, name: str, data: bytes) -> None:
        if self._files.getScheme() in _EXCLUSIVE_CREATE:
            self._create(name, data, overwrite=True)
            return
        aside = self._aside()
        self._create(aside, data, overwrite=True)
        with self._errors(name):
            # The rename of FileContext replaces in one step, which that of FileSystem does not.
            target = self._path(name)
            self._files.mkdirs(target.getParent())
            options = self._jvm.java.lang.reflect.Array.newInstance(
                self._jvm.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename"), 1
            )
            options[0] = getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename").OVERWRITE
            context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
                self._base.toUri(), self._files.getConf()
            )
            context.rename(self._path(aside), target, options)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if self._files.getScheme() in _EXCLUSIVE_CREATE:
            try:
                self._create(name, data, overwrite=False)
            except LakeError:
                found = self.read(name)
                if found is None:
                    raise
                return found == data
            return True
        aside = self._aside()
        self._create(aside, data, overwrite=True)
        with self._errors(name):
            target = self._path(name)
            self._files.mkdirs(target.getParent())
            # A rename to an existing name is refused, by false or by an error.
            with contextlib.suppress(Exception):
                if self._files.rename(self._path(aside), target):
                    return True
        self.delete([aside])
        found = self.read(name)
        if found is None:
            raise LakeError(self.root / name, "a file could not be renamed to this name", "check the permissions")
        return found == data

    def list(self, prefix: str = "", count_max: int | None = None) -> list[Entry]:
        folder, _, _ = prefix.rpartition("/")
        found = []
        with self._errors(prefix):
            for part in self._folders(folder, prefix):
                found += self._walk(part)
        return sorted(entry for entry in found if entry.name.startswith(prefix))[:count_max]

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with self._errors(name):
                path = self._path(name)
                self._files.delete(path, False)
                self._remove_empty(path.getParent())

    def move(self, old: str, new: str) -> None:
        """Never removes the target before the source is known to be there: another run may have just moved it."""
        with self._errors(old):
            source, target = self._path(old), self._path(new)
            problem = ""
            for _ in range(_TRIES):  # the folder may be removed as an empty one, by another run
                self._files.mkdirs(target.getParent())
                problem = self._rename(source, target)
                if problem is None:
                    break
                has_source, has_target = self._files.exists(source), self._files.exists(target)
                if not has_source and not has_target:
                    self._remove_empty(target.getParent())
                    raise NotThere(self.root / old)
                if not has_source:
                    break
                if has_target:  # of a move that copied, and was killed before it removed the source
                    if self._size(source) == self._size(target):
                        self._files.delete(source, False)
                        break
                    self._files.delete(target, False)
            else:
                raise LakeError(self.root / old, f"cannot be renamed to {new}{problem}", "check the permissions")
            self._remove_empty(source.getParent())

    def check_exclusive(self, name: str) -> None:
        """Nothing to check: a name is given once."""

    def table_file(self, name: str) -> NoReturn:
        raise AssertionError("only Spark writes and reads tables here")

    def make_durable(self, name: str) -> None:
        """Nothing to do: only Spark writes tables here, and what it has written is as durable as the store makes it."""

    # -- parts -------------------------------------------------------------------------------------

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(str(self.root / check_name(name)))

    def _aside(self) -> str:
        return f"{_ASIDE}/{uuid.uuid4().hex}"

    def _create(self, name: str, data: bytes, *, overwrite: bool) -> None:
        with self._errors(name):
            stream = self._files.create(self._path(name), overwrite)
            try:
                for at in range(0, len(data), _COPY_BYTES):
                    stream.write(bytearray(data[at : at + _COPY_BYTES]))
            finally:
                stream.close()

    def _rename(self, source: Any, target: Any) -> str | None:
        """None if it was done, otherwise why not: a name that is taken is refused, by false or by an error."""
        from py4j.protocol import Py4JJavaError

        try:
            return None if self._files.rename(source, target) else ""
        except Py4JJavaError as error:
            return f" ({java_reason(error)})"

    def _size(self, path: Any) -> int:
        return self._files.getFileStatus(path).getLen()

    def _folders(self, folder: str, prefix: str) -> Iterator[Any]:
        """The folders, and files, directly below `folder` that may hold names with this prefix."""
        from py4j.protocol import Py4JJavaError

        try:
            children = self._files.listStatus(self._path(folder) if folder else self._base)
        except Py4JJavaError as error:
            if _is_missing(error):
                return
            raise
        for child in children:
            if self._name(child.getPath()).startswith(prefix):
                yield child

    def _walk(self, status: Any) -> Iterator[Entry]:
        if status.isFile():
            yield Entry(self._name(status.getPath()), status.getLen())
            return
        files = self._files.listFiles(status.getPath(), True)
        while files.hasNext():
            one = files.next()
            yield Entry(self._name(one.getPath()), one.getLen())

    def _name(self, path: Any) -> str:
        return str(path.toUri().getPath())[len(self.root.path) :].lstrip("/")

    def _remove_empty(self, folder: Any) -> None:
        with contextlib.suppress(Exception):
            while str(folder.toUri().getPath()).rstrip("/") != self.root.path:
                if not self._files.delete(folder, False):
                    return
                folder = folder.getParent()

    @contextlib.contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        from py4j.protocol import Py4JJavaError

        try:
            yield
        except Py4JJavaError as error:
            what = java_reason(error)
            if "UnsupportedFileSystemException" in what or "ClassNotFoundException" in what:
                hint = "add its connector, for example --conf spark.jars.packages=GROUP:ARTIFACT:VERSION"
                raise BadOption(f"{self.root}: Spark has no file system for {self.root.scheme}: {hint}") from error
            hint = "check the address, the connector's settings (spark.hadoop.fs...) and the permissions, run again"
            raise LakeError(self.root / name, what, hint) from error


def java_reason(error: Any) -> str:
    """Class and message of the cause, in one line."""
    return str(error.java_exception).splitlines()[0]


def _is_missing(error: Any) -> bool:
    return error.java_exception.getClass().getName().endswith("FileNotFoundException")
