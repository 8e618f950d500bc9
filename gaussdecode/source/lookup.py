"""The interface of catalogue lookups, for every kind of source."""

from typing import TYPE_CHECKING, Protocol

from gaussdecode.model.relation import Relation
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.source.address import source_address
from gaussdecode.source.catalog import CatalogTable

if TYPE_CHECKING:
    from gaussdecode.source.gaussdb.area import Area


class Lookup(Protocol):
    """Looks tables of the stream up."""

    @property
    def failure(self) -> object:
        """Why the catalogue could not be read the last time; None when it could."""

    @property
    def failure_count(self) -> int:
        """How often it could not be read."""

    def look_up(self, relation: Relation) -> CatalogTable | None:
        """The table as it is now; `CatalogTable.missing` if there is none; None if the catalogue cannot answer.

        Raises:
            SourceError: it cannot be read, and a schema without it would be wrong.
        """

    def close(self) -> None:
        """Close the connection."""


def lookup_of(config: Config) -> Lookup:
    """Make the one that fits the kind of source."""
    if config.source.kind is SourceKind.GAUSSDB:  # imported where it is used, as in `exporters`
        from gaussdecode.source.gaussdb.catalog import GaussCatalog

        return GaussCatalog(source_address(config))
    from gaussdecode.source.postgresql.catalog import Catalog

    return Catalog(config)


def area_of(config: Config) -> "Area | None":
    """The reader of one stretch of WAL; None where there is none."""
    if config.source.kind is not SourceKind.GAUSSDB:
        return None
    from gaussdecode.source.gaussdb.area import Area

    return Area(source_address(config))
