"""An archive as a Delta table, committed with deltalake.

Each batch is one version of the table. Its commitInfo has the batch's properties (see `commits`), and a `txn` action
has the number of the batch, which Delta keeps when old log files are removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Field
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, PostCommitHookProperties, Transaction

from twinlog.spark.ddl_types import type_text
from twinlog.spark.jobs.archive.layout import CHECKPOINT, BadArchive, StagedFile, day_of, topic_of
from twinlog.spark.jobs.archive.tables.commits import PREFIX, TableCommit, decode_commit
from twinlog.spark.jobs.archive.tables.delta_log import DeltaLog
from twinlog.spark.jobs.archive.tables.table import PARTITIONS, Conflict, FileShape, TablePlace, Version, no_version
from twinlog.spark.schema import Columns, arrow_schema

if TYPE_CHECKING:
    from twinlog.spark.lake.lake import Lake

APPLICATION = "twinlog.archive"  # of the txn actions
_HISTORY_STEPS = (1, 20, 400, None)  # how far back a commit is looked for, in turn
# For commits without a batch: old entries of the log go only after `repeat_last`, or the offsets would go with them.
KEEP_LOG = PostCommitHookProperties(cleanup_expired_logs=False)
_FOOTERS_AT_ONCE = 8
_TRIES_MAX = 20
_BOUNDED = ("queueId", "queueOffset", "storeTimestamp", "brokerName")  # columns whose bounds help a query


def open_delta(place: TablePlace) -> DeltaArchive | None:
    """The table; None if there is none."""
    try:
        return DeltaArchive(place, DeltaTable(_address(place.lake), storage_options=storage_options(place.lake)))
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise _cannot(place, error) from error


def create_delta(place: TablePlace, columns: Columns) -> DeltaArchive:
    try:
        DeltaTable.create(
            _address(place.lake),
            arrow_schema(columns),
            mode="ignore",  # another run may be quicker; whether its table fits is checked by the caller
            partition_by=list(PARTITIONS),
            description="made by twinlog pipeline archive",
            storage_options=storage_options(place.lake),
        )
    except (DeltaError, OSError) as error:
        raise _cannot(place, error) from error
    made = open_delta(place)
    assert made is not None
    made.keep()
    return made


class DeltaArchive:
    """See `table.ArchiveTable`."""

    def __init__(self, place: TablePlace, table: DeltaTable) -> None:
        self.place = place
        self.table = table
        self._log = DeltaLog(place.lake)

    def columns(self) -> Columns:
        schema: Any = pa.schema(self._fresh().schema().to_arrow())
        return {field.name: type_text(field.type) for field in schema}

    def add_columns(self, added: Columns) -> None:
        fields = [Field.from_arrow(field) for field in arrow_schema(added)]
        try:
            self._fresh().alter.add_columns(fields, post_commithook_properties=KEEP_LOG)
        except DeltaError as error:
            raise _cannot(self.place, error) from error
        self.keep()

    def file_shape(self, columns: Columns) -> FileShape:
        return FileShape(arrow_schema({name: kind for name, kind in columns.items() if name not in PARTITIONS}), "")

    def last(self) -> TableCommit | None:
        table = self._fresh()
        batch = table.transaction_version(APPLICATION)
        if batch is None:
            return self._last_of_spark()
        for limit in _HISTORY_STEPS:
            for entry in _effective(table.history(limit)):
                if (found := decode_commit(entry)) is not None:
                    return found
        hint = "keep the log longer (delta.logRetentionDuration); archive to a new directory"
        raise BadArchive(f"{self.place.lake.root} ends with batch {batch}, whose log entry is removed: {hint}")

    def append(self, files: Sequence[StagedFile], commit: TableCommit) -> None:
        now = int(datetime.now(UTC).timestamp() * 1000)
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
            stats = list(pool.map(self._stats, files))
        actions: list[Any] = [
            AddAction(file.path, file.bytes, _values(file.partition), now, True, json.dumps(found))
            for file, found in zip(files, stats, strict=True)
        ]
        properties = CommitProperties(
            custom_metadata={
                **commit.encode(),
                f"{PREFIX}rows": str(sum(file.rows for file in files)),
                f"{PREFIX}files": str(len(files)),
                "userMetadata": f"twinlog archive, batch {commit.batch}",
            },
            max_commit_retries=0,  # after any other commit our own rules are asked again
            app_transactions=[Transaction(APPLICATION, commit.batch)],
        )
        self._log.keep(self.table.version())
        try:
            self.table.create_write_transaction(
                actions, "append", self.table.schema(), list(PARTITIONS), commit_properties=properties
            )
        except CommitFailedError as error:
            raise Conflict(str(error)) from error
        except (DeltaError, OSError) as error:
            raise _cannot(self.place, error) from error
        self.keep()

    def keep(self) -> None:
        """Return when the newest version survives a power cut."""
        self._log.keep(self._fresh().version())

    def repeat_last(self) -> None:
        """Make the newest version name the last batch: Delta removes the entries of older ones when they are old."""
        for _ in range(_TRIES_MAX):
            last = self.last()
            if last is None or self.table.transaction_version(APPLICATION) is None:
                return
            if decode_commit(self.table.history(1)[0]) == last:
                return
            try:
                return self.append([], last)
            except Conflict:
                continue

    def versions(self) -> list[Version]:
        return [_version(entry) for entry in reversed(self._fresh().history())]

    def data_files(self, version: int | None = None) -> list[str]:
        table = self._fresh()
        if version is not None:
            try:
                table = DeltaTable(
                    _address(self.place.lake), version=version, storage_options=storage_options(self.place.lake)
                )
            except (DeltaError, OSError) as error:
                raise no_version(self.place, version, [one.version for one in self.versions()]) from error
        if any(batch.num_rows for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors())):
            hint = "read it with Spark's Delta, or run REORG TABLE ... APPLY (PURGE) there first"
            raise BadArchive(f"rows of the table {self.place.lake.root} are deleted by vectors: {hint}")
        return sorted(table.file_uris())

    def _fresh(self) -> DeltaTable:
        try:
            self.table.update_incremental()
        except (DeltaError, OSError) as error:
            raise _cannot(self.place, error) from error
        return self.table

    def _stats(self, file: StagedFile) -> dict[str, Any]:
        """What the log says about a file, from its footer."""
        files, path = self.place.lake.table_file(file.path)
        with files.open_input_file(path) as source:
            footer = pq.read_metadata(source)
        lows: dict[str, Any] = {}
        highs: dict[str, Any] = {}
        for group in (footer.row_group(number) for number in range(footer.num_row_groups)):
            for column in (group.column(number) for number in range(group.num_columns)):
                name, found = column.path_in_schema, column.statistics
                if name in _BOUNDED and found is not None and found.has_min_max:
                    lows[name] = min(lows.get(name, found.min), found.min)
                    highs[name] = max(highs.get(name, found.max), found.max)
        return {"numRecords": file.rows, "minValues": _plain(lows), "maxValues": _plain(highs)}

    def _last_of_spark(self) -> TableCommit | None:
        """The last batch of an archive that Spark's own sink filled, before the table itself had the offsets."""
        lake = self.place.lake
        metadata = lake.read(f"{CHECKPOINT}/metadata")
        batch = self.table.transaction_version(json.loads(metadata)["id"]) if metadata else None
        offsets = lake.read(f"{CHECKPOINT}/offsets/{batch}") if batch is not None else None
        if batch is not None and offsets is not None:
            return TableCommit(batch=batch, run="", start={}, end=json.loads(offsets.decode().splitlines()[2]))
        if self.table.file_uris():
            hint = "restore the _checkpoint directory of the version that filled it, or archive to a new directory"
            raise BadArchive(f"{lake.root} has rows, and neither offsets nor a checkpoint: {hint}")
        return None


def storage_options(lake: Lake) -> dict[str, str]:
    """The settings of a bucket as deltalake names them."""
    settings: Any = getattr(lake, "settings", None)
    if settings is None:
        return {}
    found = {
        "AWS_ENDPOINT_URL": settings.endpoint,
        "AWS_REGION": settings.region or ("us-east-1" if settings.endpoint else None),
        "AWS_ACCESS_KEY_ID": settings.access_key,
        "AWS_SECRET_ACCESS_KEY": settings.secret_key,
        "AWS_SESSION_TOKEN": settings.session_token,
        "AWS_SKIP_SIGNATURE": "true" if settings.anonymous else None,
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false" if settings.path_style else None,
        "AWS_ALLOW_HTTP": "true" if (settings.endpoint or "").startswith("http:") else None,
        "conditional_put": "etag",
        "max_retries": str(max(settings.attempts_max - 1, 0)),
        "timeout": f"{max(int(settings.read_s), 1)}s",
        "connect_timeout": f"{max(int(settings.connect_s), 1)}s",
    }
    return {key: value for key, value in found.items() if value}


def _address(lake: Lake) -> str:
    return str(lake.root)


def _cannot(place: TablePlace, error: Exception) -> BadArchive:
    lines = str(error).splitlines() or [type(error).__name__]
    # Causes follow on lines of their own, behind coloured arrows; the last one is the reason.
    causes = [line.rpartition("↳")[2].removeprefix("\x1b[0m").strip() for line in lines[1:] if "↳" in line]
    what = ": ".join((lines[0], *causes[-1:]))
    return BadArchive(f"the Delta table {place.lake.root} cannot be used ({what}): what was committed stays, run again")


def _values(partition: str) -> dict[str, str | None]:
    return {"topic": topic_of(partition), "day": day_of(partition)}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as Delta's JSON has them; times are in milliseconds there."""
    return {name: _plain_time(value) if isinstance(value, datetime) else value for name, value in values.items()}


def _plain_time(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _effective(history: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The entries that the table still consists of, newest first: after a RESTORE, those up to its version."""
    newest: int | None = None
    for entry in history:
        if newest is not None and entry["version"] > newest:
            continue
        yield entry
        if entry.get("operation") == "RESTORE":
            wanted = (entry.get("operationParameters") or {}).get("version")
            newest = int(wanted) if wanted is not None else newest


def _version(entry: Mapping[str, Any]) -> Version:
    batch = decode_commit(entry)
    metrics = entry.get("operationMetrics") or {}
    return Version(
        int(entry["version"]),
        int(entry.get("timestamp", 0)),
        str(entry.get("operation", "unknown")).lower(),
        batch.batch if batch else None,
        int(metrics.get("numOutputRows") or entry.get(f"{PREFIX}rows") or 0),
        int(metrics.get("numFilesAdded") or metrics.get("numFiles") or entry.get(f"{PREFIX}files") or 0),
    )
