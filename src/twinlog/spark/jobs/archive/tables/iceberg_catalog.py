"""Where the newest metadata of an Iceberg table is found: in its own directory, or in a catalog.

Without a catalog, a table's directory is all there is ("file system table" of Iceberg's specification):

    metadata/v1.metadata.json  v2.metadata.json ...     each version is created under a name that must not exist
    metadata/version-hint.text                          a recent version; newer ones are looked for after it

Spark, DuckDB and pyiceberg read such a table by its path. The exchange between writers is the creation of the next
version, so it needs a file system that creates a file only if it is absent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata

from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.archive.layout import BadArchive

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema

    from twinlog.spark.lake.lake import Lake

HINT = "metadata/version-hint.text"
NAMESPACE = "twinlog"


def catalog_for(lake: Lake, given: Mapping[str, str]) -> Catalog:
    """The catalog that the options name, or the table's own directory."""
    properties = {**io_properties(lake), **given}
    if not given:
        return DirectoryCatalog(lake, properties)
    name = properties.pop("name", None)
    try:
        return load_catalog(name, **properties)
    except Exception as error:  # each kind of catalog has errors of its own
        raise no_answer(given, error) from error


def no_answer(given: Mapping[str, str], error: Exception) -> BadOption:
    """The error for a catalog that cannot be used."""
    what = re.sub(r"\?[^\s'\")]+", "?...", " ".join(str(error).split()))[:300] or type(error).__name__
    # What is before an @ or after a ? may be a password.
    shown = [key for key in ("name", "type", "uri") if not {*"@?"} & {*given.get(key, "@")}]
    place = ", ".join(f"{key}={given[key]}" for key in shown)
    return BadOption(f"the catalog {place or 'of --catalog'} cannot be used ({what}): check its address and options")


def location_of(lake: Lake) -> str:
    """The table's location, with a scheme: engines would look for a bare path on their default file system."""
    return f"file://{lake.root}" if lake.root.is_local else str(lake.root)


def io_properties(lake: Lake) -> dict[str, str]:
    """The settings of a bucket as pyiceberg names them."""
    settings: Any = getattr(lake, "settings", None)
    if settings is None:
        return {}
    found = {
        "s3.endpoint": settings.endpoint,
        "s3.region": settings.region or ("us-east-1" if settings.endpoint else None),
        "s3.access-key-id": settings.access_key,
        "s3.secret-access-key": settings.secret_key,
        "s3.session-token": settings.session_token,
        "s3.anonymous": "true" if settings.anonymous else None,
        "s3.connect-timeout": str(settings.connect_s),
        "s3.request-timeout": str(settings.read_s),
    }
    return {key: value for key, value in found.items() if value}


class DirectoryCatalog(NoopCatalog):
    """A catalog of the one table whose directory this is."""

    def __init__(self, lake: Lake, properties: Mapping[str, str]) -> None:
        super().__init__("directory", **properties)
        self._lake = lake

    def create_table(
        self,
        identifier: str | tuple[str, ...],
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Mapping[str, str] = {},
    ) -> Table:
        made = new_table_metadata(
            self._convert_schema_if_needed(schema),
            partition_spec,
            sort_order,
            location or location_of(self._lake),
            dict(properties),
        )
        if not self._lake.put_if_absent(_version_file(1), _encode(made)):
            raise TableAlreadyExistsError(f"{self._lake.root} has a table already")
        self._lake.write(HINT, b"1")
        return self.load_table(identifier)

    def create_namespace_if_not_exists(self, namespace: Any, properties: Any = None) -> None:
        """A directory has no namespaces."""

    def load_table(self, identifier: str | tuple[str, ...]) -> Table:
        version, metadata = self._newest()
        place = f"{metadata.location}/{_version_file(version)}"
        io = load_file_io({**self.properties, **metadata.properties}, location=place)
        return Table(self.identifier_to_tuple(identifier), metadata, place, io, self)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        version, current = self._newest()
        for requirement in requirements:
            requirement.validate(current)
        before = f"{current.location}/{_version_file(version)}"
        changed = update_table_metadata(current, updates, metadata_location=before)
        self._keep_manifests(table, changed)
        if not self._lake.put_if_absent(_version_file(version + 1), _encode(changed)):
            raise CommitFailedException(f"{self._lake.root} was changed by another process")
        # A process that slept before its commit, while old versions were expired, may have created one of those again.
        if self._hint() <= version:
            self._lake.write(HINT, b"%d" % (version + 1))
        return CommitTableResponse(
            metadata=changed, **{"metadata-location": f"{changed.location}/{_version_file(version + 1)}"}
        )

    def _keep_manifests(self, table: Table, changed: TableMetadata) -> None:
        """Make durable what pyiceberg wrote for a new snapshot, before the metadata names it."""
        snapshot = changed.current_snapshot()
        if snapshot is None or table.metadata.current_snapshot_id == snapshot.snapshot_id:
            return
        made = [
            one.manifest_path for one in snapshot.manifests(table.io) if one.added_snapshot_id == snapshot.snapshot_id
        ]
        for place in (*made, snapshot.manifest_list):
            self._lake.make_durable(place.removeprefix(f"{changed.location}/"))

    def _newest(self) -> tuple[int, TableMetadata]:
        """The hint may be old, if a process was killed before it wrote the next one: look after it."""
        version = self._hint() or self._last_listed()
        data = self._lake.read(_version_file(version)) if version else None
        if data is None:
            version = self._last_listed()
            data = self._lake.read(_version_file(version)) if version else None
        if data is None:
            raise NoSuchTableError(f"{self._lake.root} has no Iceberg table")
        while (later := self._lake.read(_version_file(version + 1))) is not None:
            version, data = version + 1, later
        try:
            return version, TableMetadataUtil.parse_raw(data.decode())
        except ValueError as error:
            place = self._lake.root / _version_file(version)
            raise BadArchive(f"{place} cannot be read ({str(error).splitlines()[0]}): restore it") from error

    def _hint(self) -> int:
        """The version that the hint names; 0 if there is none."""
        hint = self._lake.read(HINT)
        return int(hint) if hint and hint.strip().isdigit() else 0

    def _last_listed(self) -> int:
        names = [entry.name.rpartition("/")[2] for entry in self._lake.list("metadata/v")]
        numbers = [name.removeprefix("v").removesuffix(".metadata.json") for name in names]
        return max((int(number) for number in numbers if number.isdigit()), default=0)


def _version_file(version: int) -> str:
    return f"metadata/v{version}.metadata.json"


def _encode(metadata: TableMetadata) -> bytes:
    return metadata.model_dump_json(exclude_none=True).encode()
