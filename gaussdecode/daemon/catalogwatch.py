"""Watch the catalogue of a PostgreSQL server for changes that the stream does not show.

`check` runs before each entry of the commit log, on the collector's thread. It reads the catalogue as it is
after all changes of the entry. So no reader sees an entry before the log names the tables that it may be
wrong about. A difference becomes a suspect entry, which comes first. When that entry is durable,
`recorded` stores the new states. A suspect entry that is repeated after a crash does no harm.

The known states begin with the landing and are kept in it (`land.snapshots`). A landing that was fetched
from a mirror without them begins with no known table. A start compares everything; later checks read only
rows that are newer than the check before. `fingerprints` and `publications` decide the meaning of
differences.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from gaussdecode.collect.ddl_states import Columns, DdlStates, StateColumn
from gaussdecode.collect.descriptions import Descriptions
from gaussdecode.daemon import publications
from gaussdecode.daemon.fingerprints import (
    Change,
    Known,
    compare,
    contradicted_change,
    gone_change,
    judge_unsure,
    made_anew,
    moved_change,
    partition_change,
    renamed_rows,
    suspect,
    unknown_change,
)
from gaussdecode.land.names import table_directory
from gaussdecode.land.snapshots import UNKNOWN_BEFORE, SnapshotStore
from gaussdecode.model.fingerprint import Tables, TableState
from gaussdecode.model.landing import Position
from gaussdecode.model.title import split_title
from gaussdecode.source.postgresql.connection import Connection
from gaussdecode.source.postgresql.ddl import is_recording
from gaussdecode.source.postgresql.fingerprints import Look, Looker, Mark
from gaussdecode.source.postgresql.members import Members, read_members

_SECONDS: Final = (
    60.0  # that a statement may take; a catalogue of a hundred thousand tables needs two
)

_NAMES_FOLLOW: Final = (
    150000  # from here on a walsender forgets by which name it sent a partition's rows
)

Json = dict[str, Any]  # Any: JSON
Answer = TypeVar("Answer")


class Catalog(Protocol):
    """Asks a server."""

    def ask(self, question: Callable[[Connection], Answer], seconds: float) -> Answer:
        """Ask something; each statement may take so long.

        Raises:
            SourceError: the server failed.
        """


class CatalogWatch:
    """Of one source.

    Args:
        names: names of the publications.
        source: name of the source, where there are several.
        catalog: asks the server.
        store: store of the landing.
        lands: whether a table lands by configuration, given schema and name.
        is_left_out: whether a table is left out of the landing anyway, given title and OID.
        has_landed: whether rows of a table have landed, given its directory.
        renew: has another connection begin once everything up to a position has landed; told of which
            tables rows may come under a former name until then.

    Attributes:
        ddl: columns of tables as DDL of the stream tells them; made anew by `begin`.

    A walsender of PostgreSQL 14 goes on sending the rows of a partition under the name that it first sent
    them by, whatever is attached or detached. So the connection is renewed, once all has landed that was
    there when the command was seen.

    Where no row of a table has come, a change is held back until one has, or until all has come that was
    there when the change was seen: then nobody will ever see a row from before it.
    """

    def __init__(
        self,
        names: Sequence[str],
        source: str | None,
        catalog: Catalog,
        store: SnapshotStore,
        lands: Callable[[str, str], bool],
        is_left_out: Callable[[str, int], bool],
        has_landed: Callable[[str], bool],
        renew: Callable[[frozenset[str], int], None] = lambda *_: None,
    ) -> None:
        self._renew = renew
        self._keeps_names = False  # the server is such a 14
        self._names = tuple(names)
        self._source = source
        self._catalog = catalog
        self._store = store
        self._lands = lands
        self._is_left_out = is_left_out
        self._has_landed = has_landed
        self.ddl = DdlStates()
        self._publications: publications.Identities
        self._members: Members
        self._publications, self._members = publications.known_to(store, source)
        records = store.fingerprints()
        record = records.get(source or "")
        self._is_first = record is None
        self._is_unknown_before = self._is_first and UNKNOWN_BEFORE in records
        self._known = Known() if record is None else Known.from_record(record)
        self._noted = self._known  # as it is written down
        self._noted_beside_held: Known | None = (
            None  # what was known then, if changes were held back
        )
        self._mark: Mark | None = None
        self._lsn = 0  # up to here everything was looked at
        self._unsure: dict[int, tuple[int, TableState]] = {}  # by OID: end of the WAL, state then
        self._emptied: set[str] = set()  # directories, since something is unsure
        self._unseen: set[str] = set()  # those whose TRUNCATE came before the look saw its file
        self._said: dict[
            int, str
        ] = {}  # by OID, the title under which rows are known to be missing
        self._has_news = False
        self._descriptions = Descriptions({})
        self._truncated: set[str] = set()  # directories of tables of which a TRUNCATE has come
        self._dropped: set[int] = set()  # tables of which was said that another one has their name
        self._held: dict[str, tuple[int, Change]] = {}  # by title: end of the WAL then

    @property
    def titles(self) -> dict[int, str]:
        """Of the tables by OID, at the position up to which everything was looked at.

        Where rows came under another title, and no entry says so, that one.
        """
        return {**self._known.titles, **self._known.came}

    def begin(self, lsn: int) -> list[Json]:
        """Compare everything with what the landing goes by; a landing that goes by nothing begins.

        Args:
            lsn: everything up to here has landed.

        Returns:
            What suspect entries have to say; then `recorded` is to be called.

        Raises:
            SourceError: the server cannot be asked.
        """
        self._lsn = lsn
        self.ddl = DdlStates(self._store.columns().get(self._source or ""), lsn)
        return self._look(lsn, frozenset(), is_whole=True)

    def check(self, lsn: int, emptied: Iterable[str], descriptions: Descriptions) -> list[Json]:
        """Look at the catalogue, after everything up to a position has come.

        Args:
            lsn: the position.
            emptied: directories of tables of which a TRUNCATE is in the next entry.
            descriptions: tables that the stream has described, including the next entry.

        Returns:
            As `begin`.

        Raises:
            SourceError: the server cannot be asked.
        """
        self._descriptions = descriptions
        self._truncated |= frozenset(emptied)
        found = self._look(lsn, frozenset(emptied), is_whole=False)
        self._lsn = max(self._lsn, lsn)
        return found

    def recorded(self) -> None:
        """Remember the new states: their suspect entry is in the log."""
        if self._has_news:
            publications.remember(self._store, self._publications, self._members, self._source)
            self._has_news = False
        if self._held and (self._is_first or self._known == self._noted_beside_held):
            return
        if self._known != self._noted or self._is_first:
            self._noted = self._without_held()
            self._store.note_fingerprints(self._source or "", self._noted.to_record())
            self._noted_beside_held, self._is_first = self._known, False

    def _without_held(self) -> Known:
        """What is known, but of changes that are held back the state before: a start has to find these again.

        The others have to be written down. A TRUNCATE that landed since would not come again to a start, which
        would take the table's new file for the work of a command that does not show.
        """
        if not self._held:
            return self._known
        names = {*self._held, *(name for _, of in self._held.values() for name in of.former)}
        now, before = self._known, self._noted
        held = {
            oid for known in (now, before) for oid, of in known.tables.items() if of.title in names
        }
        return Known(
            now.tables.changed(
                {oid: before.tables[oid] for oid in held & before.tables.keys()},
                gone=held - before.tables.keys(),
            ),
            {**now.types, **before.types},
            {
                **{oid: title for oid, title in now.gone.items() if oid not in held},
                **{oid: title for oid, title in before.gone.items() if oid in held},
            },
            now.came,
        )

    # ---- one look --------------------------------------------------------------------

    def _look(self, lsn: int, emptied: frozenset[str], *, is_whole: bool) -> list[Json]:
        was_recording, before = self.ddl.is_recording, self._known
        look, members, records = self._catalog.ask(
            lambda session: self._ask(session, is_whole), _SECONDS
        )
        self._mark = look.mark
        is_emptied = self._emptied_by(emptied)
        seen = {table_directory(*split_title(table.title)) for table in look.tables.values()}
        self._unseen = set(emptied) - seen
        found = [] if members is None else self._publications_changed(look, *members)
        changes: dict[str, Change] = {}
        for more in (
            {} if look.listed is None else self._compare(look, is_emptied),
            self._judge(lsn, is_emptied),
            self._gone_with_rows(),
            self._namesakes(),
            self._moved(self._descriptions.take_moved()),
            self._contradicted(lsn),
        ):
            for title, change in more.items():
                changes[title] = changes.get(title, Change(())).and_then(change)
        self._note_names(before.came if is_whole else self._descriptions.titles)
        changes = self._of_seen(_unnamed(changes, found), lsn, look.wal_lsn)
        tables = look.tables if was_recording and not is_whole else self._known.tables
        columns = {oid: _columns(tables[oid]) for oid in tables} if records else {}
        self.ddl.looked(columns, look.wal_lsn, is_recording=records)
        if changes:
            found.append(suspect(changes, self._lsn, look.wal_lsn, self._since(before.titles)))
        else:
            self.ddl.take_commands()
        if self.ddl.is_changed:  # before the states: what they no longer show may be here alone
            self._store.note_columns(self._source or "", self.ddl.to_record(lsn))
        if not found:
            self.recorded()
        return found

    def _ask(
        self, session: Connection, is_whole: bool
    ) -> tuple[Look, tuple[Members, Members] | None, bool]:
        known, records = self._known, is_recording(session)
        self._keeps_names = session.server_version < _NAMES_FOLLOW
        looker = Looker(session, self._names, self._lands)
        look = looker.look(
            self._mark, self._publications, known.tables, known.types, known.gone, is_whole=is_whole
        )
        if publications.are_known(self._publications, look.publications):
            return look, None, records
        return look, read_members(session, self._names, self._members), records

    def _publications_changed(self, look: Look, members: Members, gone: Members) -> list[Json]:
        known = self._publications
        seen = publications.with_members(look.publications, members)
        found = publications.differences(known, seen)
        left = publications.taken_out(gone, known, seen)
        self._publications, self._members, self._has_news = {**known, **seen}, members, True
        if not (found or left):
            return []
        return [publications.suspect(found, self._lsn, look.wal_lsn, left)]

    def _emptied_by(self, emptied: frozenset[str]) -> Callable[[str], bool]:
        """Whether a TRUNCATE of a table has shown since the look before, or since it became unsure.

        The server may send a commit a moment before others can see it.
        """
        if self._unsure:
            self._emptied |= emptied
        else:
            self._emptied = {*emptied, *self._unseen}
        directories = frozenset(self._emptied)
        return lambda title: table_directory(*split_title(title)) in directories

    def _compare(self, look: Look, is_emptied: Callable[[str], bool]) -> dict[str, Change]:
        if self._is_first:
            tables = {
                oid: table
                for oid, table in look.tables.items()
                if not self._is_left_out(table.title, oid)
            }
            self._known = Known(Tables.of(tables), look.types)
            return self._unknown(tables.values())
        before = self._known
        compared = compare(
            before,
            look,
            is_emptied=is_emptied,
            is_left_out=self._is_left_out,
            has_other=self._has_other,
            is_told=self._is_told,
        )
        self._known = compared.known
        for oid in self._unsure.keys() & look.tables.keys() - compared.unsure:
            del self._unsure[oid]
        for oid in compared.unsure:
            now = look.tables[oid]
            if oid not in self._unsure or self._unsure[oid][1].files != now.files:
                self._unsure[oid] = look.wal_lsn, now
        self._dropped |= {
            oid
            for oid in before.tables.keys() - compared.known.tables.keys()
            if before.tables[oid].title in compared.changes
        }
        renamed = renamed_rows(before.tables, look.tables) if self._keeps_names else None
        if renamed:
            self._renew(frozenset(renamed), look.wal_lsn)
        for oid in look.tables.keys() & before.tables.keys() & compared.known.tables.keys():
            title = compared.known.tables[oid].title
            if before.tables[oid].title != title:
                self._said[oid] = title
        return dict(compared.changes)

    def _unknown(self, tables: Iterable[TableState]) -> dict[str, Change]:
        """Of a landing from a mirror without fingerprints: any table may have changed since its rows landed."""
        if not self._is_unknown_before:
            return {}
        return {of.title: unknown_change() for of in tables if self._is_seen(of.title)}

    def _judge(self, lsn: int, is_emptied: Callable[[str], bool]) -> dict[str, Change]:
        """What was unsure and is not any more: all up to where the server was has come."""
        over = {oid: now for oid, (until, now) in self._unsure.items() if until <= lsn}
        if not over:
            return {}
        changes = judge_unsure(self._known, over, is_emptied=is_emptied)
        for oid in over:
            del self._unsure[oid]
        there = {oid: now for oid, now in over.items() if oid in self._known.tables}
        self._known = self._known.with_tables(there)
        return changes

    def _since(self, before: Mapping[int, str]) -> dict[str, Position]:
        """Where the first DDL command on each table since the look before stands, by its titles."""
        commands = self.ddl.take_commands()
        return {
            titles[oid]: at
            for titles in (before, self._known.titles)
            for oid, at in sorted(commands.items(), key=lambda item: item[1], reverse=True)
            if oid in titles
        }

    def _contradicted(self, lsn: int) -> dict[str, Change]:
        """Rows took the numbers of their columns from DDL that the catalogue has not."""
        tables = self._known.tables
        now = {oid: _columns(tables[oid]) for oid in self.ddl.due(lsn) if oid in tables}
        wrong = [oid for oid in self.ddl.passed(lsn, now) if oid in tables]
        return {tables[oid].title: contradicted_change() for oid in wrong}

    def _of_seen(self, changes: dict[str, Change], lsn: int, wal_lsn: int) -> dict[str, Change]:
        """Hold back what is of tables without rows, and say of those held back what has rows by now."""
        if not (changes or self._held):
            return changes
        read = set(self._store.tables())
        held = dict(self._held)
        for title, change in changes.items():
            until, before = held.get(title, (0, Change(())))
            older = (held[name][1].former for name in change.former & held.keys())
            now = dataclasses.replace(change, former=change.former.union(*older))
            held[title] = max(until, wal_lsn), before.and_then(now)
        found = {
            title: change
            for title, (_, change) in held.items()
            if change.misses_rows
            or table_directory(*split_title(title)) in read
            or any(map(self._is_seen, (title, *change.former)))
        }
        self._held = {
            title: (until, change)
            for title, (until, change) in held.items()
            if title not in found and until > lsn
        }
        return found

    def _is_seen(self, title: str) -> bool:
        """Whether rows of a table have come."""
        directory = table_directory(*split_title(title))
        return self._has_landed(directory) or bool(self._descriptions.oids(directory))

    def _is_told(self, before: TableState, now: TableState, number: int | None) -> bool:
        """See `Told`."""
        if number is None:  # TRUNCATE is no command of those that are recorded
            is_alone = now.sends_truncate and not now.is_root
            return is_alone and self.ddl.replaced_file(now.oid, now.files[now.oid].row_xid)
        was, column = before.columns.get(number), now.columns[number]
        if was is None:
            return self.ddl.tells_added(now.oid, number, column)
        return self.ddl.keeps_values(now.oid, number, was, column)

    def _has_other(self, title: str, oid: int) -> bool:
        """Whether rows have come under the title of a table that was not known, that are not its own."""
        directory = table_directory(*split_title(title))
        return self._has_landed(directory) or not self._descriptions.oids(directory) <= {oid}

    def _gone_with_rows(self) -> dict[str, Change]:
        """Rows came of a partition that its table does not have: it came and went between two looks."""
        gone: dict[str, set[str]] = {}
        changes: dict[str, Change] = {}
        pairs = self._descriptions.take_pairs()
        known = (
            self._known.tables
        )  # whose states are unpacked each time: a table may have many partitions
        roots = {oid: known.get(oid) for oid in {pair.above for pair in pairs}}
        found = [
            (table, oid, title)
            for above, oid, title in pairs
            if (table := roots[above]) is not None and table.is_root and oid not in table.files
        ]
        missing = {oid for _, oid, _ in found}
        holders = dict[int, list[str]]()
        for of in known.values() if missing else ():
            for oid in missing & of.files.keys():
                holders.setdefault(oid, []).append(of.title)
        for table, oid, title in found:
            others = holders.get(oid, [])
            if others and table_directory(*split_title(table.title)) in self._truncated:
                continue  # it was described for the TRUNCATE, and the other one after it by chance
            gone.setdefault(table.title, set()).add(title)
            changes |= dict.fromkeys(others, partition_change(table.title))
        return changes | {title: gone_change(partitions) for title, partitions in gone.items()}

    def _namesakes(self) -> dict[str, Change]:
        """Rows came of a table that was gone before anybody saw it, and another has its name now."""
        strange = {
            title
            for oid, title in self._descriptions.take_found()
            if oid not in self._known.tables and oid not in self._dropped
        }
        if not strange:
            return {}
        by_title = {table.title: table for table in self._known.tables.values()}
        return {title: made_anew(by_title[title]) for title in strange & by_title.keys()}

    def _note_names(self, came: Mapping[int, str]) -> None:
        """Keep that rows came under a title that their table has no more: after a start nothing else tells."""
        tables = self._known.tables
        other = {
            oid: title
            for oid, title in came.items()
            if oid in tables and self._said.get(oid) != tables.title(oid) != title
        }
        if other != self._known.came:
            self._known = dataclasses.replace(self._known, came=other)

    def _moved(self, moved: Iterable[tuple[int, str]]) -> dict[str, Change]:
        """Rows of one table came under several names: none of these has all of them."""
        changes: dict[str, Change] = {}
        came = dict[int, list[str]]()
        for oid, title in moved:
            came.setdefault(oid, []).append(title)
        for oid, titles in came.items():
            now = self._known.tables.get(oid)
            for title in titles if now is None else (*titles, now.title):
                if self._said.get(oid) != title:
                    changes[title] = moved_change(titles, oid)
                    self._said[oid] = title
        return changes


def _columns(table: TableState) -> Columns:
    return tuple(
        StateColumn(number, of.name, of.type_oid, of.type_modifier)
        for number, of in sorted(table.columns.items())
    )


def _unnamed(changes: dict[str, Change], found: list[Json]) -> dict[str, Change]:
    """Leave out what entries about publications say of the same tables."""
    named = {table for extra in found for table in extra["tables"]}
    return {
        title: change
        for title, change in changes.items()
        if not change.is_of_publication or table_directory(*split_title(title)) not in named
    }
