"""Find the directory of a target that rows go to, where tables of the source were renamed.

A landing has the rows of a table below the name that the table had then. A target keeps a renamed table
in the directory that it began in, with ``--on-ddl rename-table=apply``. So a directory has two things: its
own name, which never changes, and the name of its table in the landing. Tables are known by their OIDs.
A new table that takes the old name gets a directory of its own: the name with the OID behind it.

Pure, except for reading schema files.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from gaussdecode.model.landing import LandingFile
from gaussdecode.model.title import split_title, table_directory
from gaussdecode.spark.log.ddl import DdlEvent
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.log.schema import TableSchema
from gaussdecode.spark.merge.on_ddl import APPLY, IGNORE

if TYPE_CHECKING:
    from gaussdecode.spark.merge.plan import Doubt

Held = Mapping[str, Sequence[str]]
"""For stopped directories: names in the landing that their tables got after the stop."""


@dataclasses.dataclass(frozen=True, slots=True)
class Home:
    """The table of a directory.

    Attributes:
        oid: its OID; 0 if unknown.
        name: its directory in the landing.
        n: entry up to which this is known.
        ahead: its directory in the landing in the newest version, which may be ahead of the database.
        is_ahead: the database has no version of it: it has the name when its rows come.
        has_lost: another table has its name now: it was dropped.
    """

    oid: int
    name: str
    n: int
    ahead: str = ""
    is_ahead: bool = False
    has_lost: bool = False

    @classmethod
    def of(cls, schema: TableSchema, n: int) -> Self:
        """The home of a table that has a schema at an entry."""
        return cls(schema.oid, table_directory(*split_title(schema.title)), n)


def by_name(homes: Mapping[str, Home]) -> dict[str, str]:
    """Directories of tables, by the directory in the landing that they have now.

    Of two with one name the later one has it: the other table was dropped.
    """

    def age(table: str) -> tuple[bool, int, bool]:
        home = homes[table]
        return not home.has_lost, home.n, home.name != table

    return {homes[table].name: table for table in sorted(homes, key=age)}


class Routes:
    """Where the rows of each table go; given entry by entry what the log says, in order.

    Args:
        landing: where the rows are.
        homes: tables of the target, by directory, as the plan begins.
        held: see `Held`.
        action: of ``rename-table``.
        is_wanted: whether the plan goes on with a directory.

    Attributes:
        moves: new names of tables, with their entries, by directory.
        begun: directories that begin with rows which another one held back: the entry before these.
    """

    def __init__(
        self,
        landing: Landing,
        homes: Mapping[str, Home] | None = None,
        held: Held | None = None,
        action: str = IGNORE,
        is_wanted: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self.moves: dict[str, list[tuple[int, str]]] = {}
        self.begun: dict[str, int] = {}
        self._landing = landing
        self._homes = dict(homes or {})
        self._first = dict(self._homes)
        self._held = dict(held or {})
        self._action = action
        self._is_wanted = is_wanted
        self._oids: dict[tuple[str, str], int] = {}
        self._shut: dict[str, str] = {}
        self._by_oid: dict[int, list[str]] = {}
        self._by_name = by_name({t: of for t, of in self._homes.items() if not of.is_ahead})
        for table, home in self._homes.items():
            self._by_oid.setdefault(home.oid, []).append(table)
        is_moved = any(
            {home.name, home.ahead or table} != {table} for table, home in self._homes.items()
        )
        is_of_one = landing.source_order[1] == "gd_lsn" and not landing.has_several
        self._is_active = is_of_one and (action != IGNORE or is_moved or bool(self._held))

    def target_of(self, file: LandingFile, n: int) -> str:
        """The directory that the rows of a file go to.

        Args:
            file: a file of the landing.
            n: its entry.
        """
        name = file.table
        if not self._is_active:
            return name
        oid, holder = self.oid(file), self._by_name.get(name)
        found = self._by_oid.get(oid, [])
        if not oid:  # of GaussDB: the name alone tells
            ahead = [t for t in found if self._homes[t].is_ahead and self._homes[t].name == name]
            if holder is None and ahead:  # an apply that died began it
                holder = self._by_name[name] = ahead[0]
            return self._begin(name, oid, n) if holder is None else holder
        for table in found:
            if self._homes[table].name == name:
                self._by_name[name] = table
                return table
        if len(found) == 1:
            table, home = found[0], self._homes[found[0]]
            is_held = name in self._held.get(table, ())
            if n <= home.n or (is_held and not self._is_wanted(table)):
                return table
            if self._action == APPLY or (name == home.ahead and not is_held):
                self._move(table, name, n)
                return table
            if is_held:
                begun = self._begin(name, oid, n, is_held=True)
                self.begun.setdefault(begun, home.n)
                return begun
        return self._begin(name, oid, n)

    def shut(self, name: str, oid: int) -> None:
        """Let no other table take the directory of one in quarantine.

        It may have none, and a name that is another table's until the stream tells of the rename.

        Args:
            name: its directory in the landing as it stopped.
            oid: its OID; 0 if unknown.
        """
        found = self._by_oid.get(oid, []) if oid and self._is_active else []
        table = found[0] if len(found) == 1 else self.named(name)
        home = self._homes.get(table) if self._is_active and oid else None
        if home is None or home.oid in (0, oid):
            self._shut[name] = table

    def open(self, name: str) -> None:
        """The quarantine is over."""
        self._shut.pop(name, None)

    def is_shut(self, table: str) -> bool:
        """Whether a directory is of a table in quarantine."""
        return table in self._shut.values()

    def dropped(self, name: str) -> str | None:
        """The directory of a table that is gone from the source; None if it is there under another name."""
        home = self._homes.get(name) if self._is_active else None
        return self._by_name.get(name, name if home is None or home.name == name else None)

    def follow(self, event: DdlEvent) -> None:
        """Note the new name that a command gives to a table."""
        if not self._is_active or event.oid is None or event.is_dropped or self._action == IGNORE:
            return
        if event.schema is None or event.name is None:
            return
        found = self._by_oid.get(event.oid, [])
        name = table_directory(event.schema, event.name)
        if len(found) != 1:
            return
        if self._homes[found[0]].name == name:
            self._by_name[name] = found[0]
            return
        if event.n > self._homes[found[0]].n:
            self._move(found[0], name, event.n)

    def follows(self, table: str) -> bool:
        """Whether a directory is the only one with rows of its table."""
        home = self._homes.get(table)
        return home is None or self._by_oid.get(home.oid) == [table]

    @property
    def names(self) -> dict[str, str]:
        """Directories of tables, by the directory in the landing that they have at the end."""
        return dict(self._by_name)

    def named(self, name: str) -> str:
        """The directory of the table that has a directory in the landing now."""
        return self._by_name.get(name, name) if self._is_active else name

    def doubted(self, name: str, then: str, doubt: "Doubt") -> set[str]:
        """Directories that a suspect entry is about, when the whole log was read.

        Args:
            name: directory in the landing that it names: the newest name of the table.
            then: result of `named` at its entry.
            doubt: what it says.
        """
        if not self._is_active:
            return {name}
        new = self._by_oid.get(doubt.oid, []) if doubt.oid else []
        if len(new) == 1:  # another table took the name over
            had = self._first.get(new[0])
            is_its_alone = had is None or had.oid == doubt.oid
            return set() if doubt.comes_whole and is_its_alone else set(new)
        found = self._by_oid.get(doubt.of, []) if doubt.of else []
        if len(found) == 1 and self._action == APPLY:
            goes_on = found[0] in self._first or found[0] in self.moves
            return set() if doubt.is_rename and goes_on else set(found)
        return {then, self.named(name)}

    def oid(self, file: LandingFile) -> int:
        """OID of the table of a file; 0 if unknown."""
        key = file.table, file.schema_id
        if key not in self._oids:
            self._oids[key] = int(self._landing.schema_record(*key)["oid"])
        return self._oids[key]

    def _move(self, table: str, name: str, n: int) -> None:
        home = self._homes[table]
        if self._by_name.get(home.name) == table:
            del self._by_name[home.name]
        self._homes[table] = dataclasses.replace(home, name=name)
        self._by_name[name] = table
        self.moves.setdefault(table, []).append((n, name))

    def _begin(self, name: str, oid: int, n: int, *, is_held: bool = False) -> str:
        """Another table has the name from here on; rows that were held back are not in a directory that is ahead."""
        table = self._by_name.get(name)
        own = self._homes.get(name)
        if table is None and own is not None and own.is_ahead and own.name == name and n <= own.n:
            table = name  # a table that is gone had it before
        if table is not None and is_held and n <= self._homes[table].n:
            table = None
        if table is not None and self.is_shut(table):
            shut = self._homes[table]
            if shut.is_ahead or n > shut.n:
                table = None
        if table is None:
            table = name
            while table in self._homes or self.is_shut(table):
                table = f"{table}_{oid}"
        home = self._homes.get(table)
        if home is None or n > home.n:
            if home is not None and table in self._by_oid.get(home.oid, ()):
                self._by_oid[home.oid].remove(table)
            self._homes[table] = Home(oid, name, -1 if home is None else home.n)
            self._by_oid.setdefault(oid, []).append(table)
            self._by_name[name] = table
        return table
