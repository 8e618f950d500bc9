"""Keep the tables that the stream has described, for the comparison with the catalogue (`daemon.catalogwatch`)."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from gaussdecode.model.relation import Relation
from gaussdecode.model.title import table_title

_MOST_REMEMBERED: Final = 1000  # at least; two that belong together come together


class Pair(NamedTuple):
    """Two tables that were described one right after the other.

    Attributes:
        above: OID of the first, which may be a partitioned table.
        oid: OID of the second, which may be a partition of it.
        title: title of the second.
    """

    above: int
    oid: int
    title: str


class Descriptions:
    """Of one stream. Relations whose OID is not the server's are left out.

    Args:
        titles: titles of tables by OID, as they were called where the stream begins.
    """

    def __init__(self, titles: Mapping[int, str]) -> None:
        self._titles = dict(titles)
        self._oids: dict[str, set[int]] = {}  # by directory
        self._newest: dict[int, tuple[int, str]] = {}  # OID and title, by version
        self._found: list[tuple[int, str]] = []
        self._moved: list[tuple[int, str]] = []
        self._pairs: list[Pair] = []

    def note(self, relation: Relation) -> None:
        """Remember a description as it comes, whether rows of it land or not.

        Where rows of a partition come as those of its table, the server describes the table
        first, and the partition right after it.
        """
        if not relation.is_oid_known:
            return
        version = relation.version
        self._newest[version] = relation.oid, table_title(relation.namespace, relation.name)
        for first in (version - 1, version):  # decoders tell of them in any order
            if first in self._newest and first + 1 in self._newest:
                (above, _), (oid, title) = self._newest[first], self._newest[first + 1]
                if above != oid:
                    self._pairs.append(Pair(above, oid, title))
        if len(self._newest) > 2 * _MOST_REMEMBERED:
            for old in sorted(self._newest)[:-_MOST_REMEMBERED]:
                del self._newest[old]

    def note_rows(self, directory: str, relation: Relation) -> None:
        """Remember that rows of a table come, and under which name."""
        if not relation.is_oid_known:
            return
        oid, title = relation.oid, table_title(relation.namespace, relation.name)
        oids = self._oids.setdefault(directory, set())
        if oid not in oids:
            oids.add(oid)
            self._found.append((oid, title))
        if self._titles.setdefault(oid, title) != title:
            self._titles[oid] = title
            self._moved.append((oid, title))

    @property
    def titles(self) -> Mapping[int, str]:
        """Titles under which rows came last, by OID; of other tables those where the stream began."""
        return self._titles

    def oids(self, directory: str) -> AbstractSet[int]:
        """OIDs of the tables whose rows have come for a directory, landed or not."""
        return self._oids.get(directory, frozenset())

    def take_found(self) -> list[tuple[int, str]]:
        """OID and title of tables whose rows come for the first time; told once."""
        found, self._found = self._found, []
        return found

    def take_moved(self) -> list[tuple[int, str]]:
        """OID and title of tables that came under another name than before, in order; told once."""
        moved, self._moved = self._moved, []
        return moved

    def take_pairs(self) -> list[Pair]:
        """Partitions that may have been described for rows of their table; told once."""
        pairs, self._pairs = self._pairs, []
        return pairs
