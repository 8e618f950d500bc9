"""Publish a target's Delta tables in an Iceberg catalog, as snapshots with the same files.

The engine commits to a Delta table. Here that version becomes a snapshot of an Iceberg table, in one
commit that holds the version's number, so publishing it again changes nothing. Each snapshot follows
our last one: changes that another writer made in between (rewritten files, deleted rows) are not in it.
A name mapping finds columns in files by name. If a name comes to mean another column, older snapshots
would show the wrong one, and are removed. Uses pyiceberg, which needs no Java.
"""

import contextlib
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, Self

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchIcebergTableError,
    NoSuchPropertyException,
    NoSuchTableError,
    NotInstalledError,
    ValidationException,
)
from pyiceberg.io import PY_IO_IMPL
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import NameMapping, create_mapping_from_schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
from pyiceberg.table.update.snapshot import (
    ExpireSnapshots,
    ManageSnapshots,
    _ManifestMergeManager,
    _OverwriteFiles,
)
from pyiceberg.transforms import IdentityTransform

from gaussdecode.errors import (
    CatalogError,
    ConfigError,
    GaussDecodeError,
    LandingError,
    OvertakenError,
)
from gaussdecode.spark.catalogs.delta_to_iceberg import (
    data_file,
    fields_of,
    is_promoted,
    partition_columns,
    partition_of,
    unseen_fields,
)
from gaussdecode.spark.catalogs.iceberg_io import location_of
from gaussdecode.spark.catalogs.positions import Published
from gaussdecode.spark.log.place import Place, files_below
from gaussdecode.spark.log.sql_text import dotted
from gaussdecode.spark.target.delta_log import DeltaLog, Snapshot
from gaussdecode.spark.target.failpoint import Step, reach

_IO: Final = "gaussdecode.spark.catalogs.iceberg_io.PlaceIO"
METADATA: Final = "_iceberg"
"""Directory of Iceberg's metadata, below a Delta table; other readers ignore names with ``_``."""
VERSION: Final = "gaussdecode.version"
"""Key, in table properties and snapshot summaries, of the Delta table's version."""
_OF: Final = "gaussdecode.table"
_FORMAT: Final = 2
SNAPSHOTS: Final = 50
"""Snapshots kept per table, at most twice as many: each commit writes a list of all of them."""
_MANIFESTS: Final = 20
"""Manifests of a table that are merged into one; each commit reads all of them."""
_TAG: Final = re.compile(r"v\d+")
_MAPPING: Final = "schema.name-mapping.default"
_MAIN: Final = "main"
_LONGEST: Final = 200
"""Characters of an error of a catalog that are shown."""
_UNSEEN_IDS: Final = itertools.count(2_000_000_000)
"""First number of columns that no schema has; a catalog numbers from 1."""
Say = Callable[[str], None]


class IcebergTables:
    """Our tables in an Iceberg catalog.

    Args:
        catalog: catalog name in pyiceberg's configuration.
        say: called with a sentence if another writer changed a table.

    Raises:
        ConfigError: there is no such catalog.
        CatalogError: the catalog does not answer.
    """

    def __init__(self, catalog: str, say: Say = lambda _: None) -> None:
        self._say = say
        try:
            self._catalog: Catalog = load_catalog(catalog, **{PY_IO_IMPL: _IO})
        except (ValueError, NotInstalledError) as error:  # what its settings are not
            raise ConfigError(
                f"catalog {catalog} cannot be opened ({_said(error)}): describe it in ~/.pyiceberg.yaml, or by "
                f"PYICEBERG_CATALOG__{catalog.upper()}__URI and its other settings"
            ) from None
        except Exception as error:  # noqa: BLE001 - each kind of catalog has errors of its own
            raise CatalogError(f"catalog {catalog} cannot be opened ({_said(error)})") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        """Close its connections."""
        with contextlib.suppress(Exception):  # nothing is left to be done in it
            self._catalog.close()

    # --- making snapshots --------------------------------------------------------------------

    def check(self, one: Published) -> None:
        """Check that a name does not belong to another table.

        Raises:
            ConfigError: it does.
            CatalogError: the catalog failed.
        """
        with _named(one):
            self._open(one)

    def publish(self, one: Published) -> None:
        """Give a table the snapshot of a version, unless it has it.

        Raises:
            ConfigError: the name belongs to another table.
            CatalogError: the catalog failed.
            OvertakenError: another writer committed first.
        """
        delta = DeltaLog(one.place).snapshot(one.version)
        if any("deletionVector" in add for add in delta.adds.values()):
            raise LandingError(
                f"{one.place} has deletion vectors, which Iceberg does not show: take them away with "
                "REORG TABLE ... APPLY (PURGE) of Delta Lake"
            )
        with _named(one):
            table = self._open(one)
            if table is not None and table.format_version > _FORMAT:
                raise LandingError(
                    f"{dotted(one.name)} was brought to version {table.format_version} of Iceberg's format, of which "
                    f"pyiceberg writes up to {_FORMAT}: drop the table (its files stay), and apply again"
                )
            if table is not None and partition_columns(table.metadata) != partition_of(delta):
                self._catalog.drop_table(table.name())  # its files stay: see `_create`
                table = None
            if table is None:
                self._create(one, delta)
            elif _difference(table, one):
                self._add_snapshot(table, one, delta)

    def _open(self, one: Published) -> Table | None:
        """Open one of our tables; None if it does not exist.

        Raises:
            ConfigError: the name belongs to another table.
        """
        try:
            table = self._catalog.load_table(one.name[1:])
        except (
            NoSuchIcebergTableError,
            NoSuchPropertyException,
        ) as error:  # of Hive or Glue itself
            raise _taken(one, f"none of Iceberg: {_said(error)}") from None
        except NoSuchTableError:
            return None
        found = table.properties.get(_OF)
        if found != location_of(one.place):
            raise _taken(one, found or table.location())
        return table

    def _create(self, one: Published, delta: Snapshot) -> None:
        """Create a table, with its first snapshot in the same commit."""
        identifier, location = one.name[1:], location_of(one.place)
        self._catalog.create_namespace_if_not_exists(identifier[:-1])
        schema = assign_fresh_schema_ids(Schema(*fields_of(one, delta)))
        by = [
            PartitionField(
                schema.find_field(column).field_id, 1000 + at, IdentityTransform(), column
            )
            for at, column in enumerate(partition_of(delta))
        ]
        transaction = self._catalog.create_table_transaction(
            identifier,
            schema,
            location=location,
            partition_spec=PartitionSpec(*by),
            properties={
                _OF: location,
                "write.metadata.path": f"{location}/{METADATA}",
                "write.metadata.delete-after-commit.enabled": "true",
                "write.metadata.previous-versions-max": "10",
                # The files are the Delta table's: Iceberg removes none, and refuses DROP TABLE ... PURGE.
                "gc.enabled": "false",
            },
        )
        made = transaction.table_metadata.schema()
        others = Schema(*unseen_fields(one, delta, set(made.column_names)))
        mapping = [
            *create_mapping_from_schema(made),
            *create_mapping_from_schema(assign_fresh_schema_ids(others, _UNSEEN_IDS.__next__)),
        ]
        transaction.set_properties({_MAPPING: NameMapping(mapping).model_dump_json()})
        _commit(transaction, one, delta, [], is_alone=False)

    def _add_snapshot(self, table: Table, one: Published, delta: Snapshot) -> None:
        transaction, held, last = _Transaction(table), table.current_snapshot(), _ours(table)
        if last is not None and held != last:
            by = "nobody" if held is None else f"another writer (snapshot {held.snapshot_id})"
            self._say(
                f"{dotted(one.name)}: what {by} changed in Iceberg is not kept; the next snapshot follows "
                f"{last.snapshot_id}, the last one of this program"
            )
            ManageSnapshots(transaction).set_current_snapshot(last.snapshot_id).commit()
        files = _files_of(table, one, last or held, is_ours=last is not None)
        is_alone = _bring_schema(transaction, one, delta)
        _commit(transaction, one, delta, files, is_alone=is_alone)

    # --- keeping it small --------------------------------------------------------------------

    def forget(self, one: Published, alive: Collection[int], cut: float) -> None:
        """Remove snapshots of removed versions, and Iceberg metadata files that no snapshot names.

        Args:
            one: the table.
            alive: versions of the Delta table that readers may use.
            cut: seconds since 1970; younger files stay.

        Raises:
            CatalogError: see `publish`.
            OvertakenError: see there.
        """
        with _named(one):
            table = self._open(one)
            if table is None:
                return
            kept = {ref.snapshot_id for tag, ref in table.refs().items() if tag == _MAIN}
            old = [
                of
                for of in table.snapshots()
                if of.snapshot_id not in kept and _version(of) not in alive
            ]
            if old:
                transaction = table.transaction()
                _expire(transaction, old)
                transaction.commit_transaction()
            _remove_unnamed(table, one.place, cut)

    # --- looking -----------------------------------------------------------------------------

    def difference(self, one: Published) -> str:
        """How a table differs from a version of its Delta table; empty if it does not.

        Raises:
            CatalogError: the catalog failed.
        """
        with _named(one):
            table = self._open(one)
            return "is not in the catalog" if table is None else _difference(table, one)


class _Transaction(Transaction):
    """A transaction that builds its metadata once per step; pyiceberg's builds it at each access."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._made: tuple[object, TableMetadata] = (self._updates, table.metadata)

    @property
    def table_metadata(self) -> TableMetadata:
        """See `Transaction`."""
        if self._made[0] is not self._updates:
            self._made = (self._updates, super().table_metadata)
        return self._made[1]


def _files_of(
    table: Table, one: Published, base: IcebergSnapshot | None, *, is_ours: bool
) -> list[DataFile]:
    """Files of the snapshot that the next one follows; for ours the Delta log is a faster way.

    Raises:
        LandingError: another writer left deleted rows in delete files.
    """
    if is_ours:
        with contextlib.suppress(ConfigError):  # vacuum removed that version
            adds = DeltaLog(one.place).snapshot(int(table.properties[VERSION])).adds
            location = location_of(one.place)
            return [data_file(f"{location}/{p}", add, table.metadata) for p, add in adds.items()]
    manifests = [] if base is None else base.manifests(table.io)
    if any(of.content != ManifestContent.DATA for of in manifests):
        raise LandingError(
            f"{dotted(one.name)}: another writer deleted rows, and the snapshot before that is gone: drop the table "
            "in Iceberg, and apply again"
        )
    return [entry.data_file for of in manifests for entry in of.fetch_manifest_entry(table.io)]


def _difference(table: Table, one: Published) -> str:
    """`IcebergTables.difference` of an opened table."""
    number = table.properties.get(VERSION)
    if number != str(one.version):
        return f"is at version {number} of its Delta table, not at {one.version}"
    return "" if table.current_snapshot() == _ours(table) else "was changed by another writer"


def _bring_schema(transaction: Transaction, one: Published, delta: Snapshot) -> bool:
    """Give a table the columns of a version; return whether a name now means another column."""
    before = transaction.table_metadata
    held = {field.name: field for field in before.schema().fields}
    wanted = {field.name: field for field in fields_of(one, delta)}
    update = transaction.update_schema(allow_incompatible_changes=True)
    named = {field.name for schema in before.schemas for field in schema.fields}
    is_reused = False
    for name in held.keys() - wanted.keys():
        update.delete_column((name,))
    for name, field in wanted.items():
        old = held.get(name)
        if old is not None and is_promoted(old.field_type, field.field_type):
            if old.field_type != field.field_type and old.field_type.is_primitive:
                update.update_column((name,), field_type=field.field_type)
            if field.doc and field.doc != old.doc:
                update.update_column((name,), doc=field.doc)
            continue
        is_reused = is_reused or name in named
        if old is not None:
            update.delete_column((name,))
        update.add_column((name,), field.field_type, doc=field.doc)
    update.commit()
    return is_reused


def _commit(
    transaction: Transaction, one: Published, delta: Snapshot, held: Sequence[DataFile], *,
    is_alone: bool,
) -> None:  # fmt: skip
    """Create the snapshot with a version's files, and commit the whole transaction.

    Args:
        transaction: the open transaction.
        one: table and version to publish.
        delta: the version of the Delta table.
        held: files of the snapshot that it follows.
        is_alone: remove older snapshots.
    """
    number = str(delta.version)
    older = transaction.table_metadata.snapshots
    wanted = {f"{location_of(one.place)}/{path}": add for path, add in delta.adds.items()}
    gone = [file for file in held if file.file_path not in wanted]
    new = wanted.keys() - {file.file_path for file in held}
    snapshot = _Files(
        operation=Operation.OVERWRITE if gone else Operation.APPEND,
        transaction=transaction,
        io=transaction._table.io,  # noqa: SLF001 - as pyiceberg's own update_snapshot
        snapshot_properties={VERSION: number},
    )
    for file in gone:
        snapshot.delete_data_file(file)
    for path in sorted(new):
        snapshot.append_data_file(data_file(path, wanted[path], transaction.table_metadata))
    snapshot.commit()
    if f"v{number}" in transaction.table_metadata.refs:  # of a target that was set back
        ManageSnapshots(transaction).remove_tag(f"v{number}").commit()
    ManageSnapshots(transaction).create_tag(snapshot.snapshot_id, f"v{number}").commit()
    if is_alone:
        _expire(transaction, older)
    elif len(older) >= 2 * SNAPSHOTS:
        refs = transaction.table_metadata.refs
        kept = {of.snapshot_id for name, of in refs.items() if not _TAG.fullmatch(name)}
        _expire(transaction, [of for of in older[:-SNAPSHOTS] if of.snapshot_id not in kept])
    described = {VERSION: number, "comment": delta.metadata.get("description") or ""}
    transaction.set_properties(described)
    reach(Step.CATALOG_WRITTEN)
    transaction.commit_transaction()
    reach(Step.CATALOG_COMMITTED)


class _Files(_OverwriteFiles):
    """A pyiceberg snapshot that keeps manifests few, and gives up if another writer committed first."""

    def _validate_concurrency(self) -> None:
        if self._commit_window is not None and not self._commit_window.is_empty():
            raise ValidationException("another writer committed at the same time")

    def _existing_manifests(self) -> list[ManifestFile]:
        found = super()._existing_manifests()
        return [of for of in found if of.has_added_files() or of.has_existing_files()]

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        merging = _ManifestMergeManager(
            target_size_bytes=8 << 20, min_count_to_merge=_MANIFESTS, merge_enabled=True,
            snapshot_producer=self,
        )  # fmt: skip
        return merging.merge_manifests(manifests)


def _expire(transaction: Transaction, snapshots: Sequence[IcebergSnapshot]) -> None:
    """Remove snapshots and their tags."""
    gone = {of.snapshot_id for of in snapshots}
    refs = ManageSnapshots(transaction)
    for tag, ref in transaction.table_metadata.refs.items():
        if ref.snapshot_id in gone and tag != _MAIN:
            refs.remove_tag(tag)
    refs.commit()
    ExpireSnapshots(transaction).by_ids(sorted(gone)).commit()


def _remove_unnamed(table: Table, place: Place, cut: float) -> None:
    """Remove old Iceberg metadata files that no snapshot names; expiring leaves them."""
    named = {table.metadata_location, *(of.metadata_file for of in table.metadata.metadata_log)}
    for snapshot in table.snapshots():
        named |= {snapshot.manifest_list}
        named |= {of.manifest_path for of in snapshot.manifests(table.io)}
    names = {path.rpartition("/")[2] for path in named}
    for file in files_below(place / METADATA):
        if file.modified <= cut and file.path not in names:
            (place / METADATA / file.path).unlink(missing_ok=True)


def _ours(table: Table) -> IcebergSnapshot | None:
    """The snapshot of the version that the table's property names."""
    number = table.properties.get(VERSION)
    found = [of for of in table.snapshots() if str(_version(of)) == number]
    return found[-1] if found else None


def _version(snapshot: IcebergSnapshot) -> int | None:
    summary = snapshot.summary
    number = None if summary is None else summary.additional_properties.get(VERSION)
    return None if number is None else int(number)


# --- errors ----------------------------------------------------------------------------------


def _taken(one: Published, by: str) -> ConfigError:
    return ConfigError(
        f"{dotted(one.name)} is there already, and is another table ({by}): begin a new target with another "
        "--catalog, or drop that name"
    )


@contextlib.contextmanager
def _named(one: Published) -> Iterator[None]:
    """Add the table's name to errors of the catalog.

    Raises:
        CatalogError: the catalog failed.
        OvertakenError: another writer committed first.
    """
    try:
        yield
    except GaussDecodeError:
        raise
    except (CommitFailedException, ValidationException):
        raise OvertakenError(
            f"{dotted(one.name)} was committed by another writer at the same time; nothing was changed by this one, run it again"
        ) from None
    except Exception as error:  # noqa: BLE001 - each kind of catalog has errors of its own
        raise CatalogError(
            f"the catalog did not take {dotted(one.name)} ({_said(error)}); the rows are written, and stay. Apply again when "
            "the catalog can"
        ) from None


def _said(error: Exception) -> str:
    """First line of an error; later lines may hold SQL and values."""
    first, _, _ = str(error).strip().partition("\n")
    return f"{type(error).__name__}: {first[:_LONGEST]}"
