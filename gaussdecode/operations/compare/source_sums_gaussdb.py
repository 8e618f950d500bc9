"""Compute checksums of rows on a GaussDB server; see `source_sums`."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

from gaussdecode.model.types import is_numeric
from gaussdecode.operations.compare.source_sums import SourceSums, SourceTable
from gaussdecode.settings.sections import Config
from gaussdecode.source.export import (
    Exported,
    PublishedTable,
    Spelling,
    TableChangedError,
    TableShape,
)
from gaussdecode.source.gaussdb.export import GaussExporter
from gaussdecode.spark.maintain.checksums import MovingError

_SETTINGS: Final = (
    "SET datestyle = 'ISO, YMD'",
    "SET intervalstyle = 'postgres'",
    "SET timezone = 'UTC'",
    "SET bytea_output = 'hex'",
)


class GaussSums(SourceSums):
    """A snapshot of GaussDB.

    Args:
        config: configuration of a source of kind gaussdb.
        view: snapshot to import.
    """

    def __init__(self, config: Config, view: Exported) -> None:
        exporter = GaussExporter(config)
        self._reader = exporter.open_reader(config.snapshot.statement_timeout, lambda: False)
        for setting in _SETTINGS:
            self.query(setting)
        self._reader.begin(view)
        self._tables = {(of.schema, of.name): of for of in self._reader.published()}

    def close(self) -> None:
        """See `SourceSums`."""
        self._reader.close()

    def query(self, text: str, *, is_long: bool = False) -> Sequence[Sequence[str | None]]:
        """See `SourceSums`."""
        return self._reader.connection.query(text)

    @contextlib.contextmanager
    def table(self, schema: str, name: str) -> Iterator[SourceTable | None]:
        """See `SourceSums`; a TRUNCATE or ALTER meanwhile is detected at the end."""
        found: PublishedTable | None = self._tables.get((schema, name))
        if found is None:
            yield None
            return
        try:
            shape = self._reader.shape(found)
            yield SourceTable(shape.leaves[0].quoted, _spellings(shape), found.oid)
            self._reader.check_files(shape, [0])
        except TableChangedError as error:
            raise MovingError(error.reason) from None

    def title_of(self, oid: int) -> str | None:
        """See `SourceSums`; tables that are stored by column, or not on the white list, are none."""
        return next((of.title for of in self._tables.values() if of.oid == oid), None)


def _spellings(shape: TableShape) -> dict[str, Spelling]:
    columns = shape.relation.columns
    forms = shape.spelling or bytes(len(columns))
    return {
        column.name: Spelling.NUMBER if is_numeric(column.type_oid) else Spelling(form)
        for column, form in zip(columns, forms, strict=True)
    }
