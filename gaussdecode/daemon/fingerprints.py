"""Compare two states of the catalogue: name the changes of tables that the stream cannot have shown.

Given the states that the landing is based on, and a new reading of the catalogue. Gives a sentence per
table, and the states to remember. Pure: no I/O. `model.fingerprint` compares one table.

A replaced file may come from a TRUNCATE that has not arrived yet (`Replaced.UNSURE`). It is judged when the
stream has passed the position of the reading; until then the old file is remembered.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any, Final, Self

from gaussdecode.land.names import table_directory
from gaussdecode.model.fingerprint import (
    TABLE,
    FileState,
    MissingRows,
    Replaced,
    Tables,
    TableState,
    TypeState,
    differences,
    replaced_files,
    types_of,
    why_replaced,
)
from gaussdecode.model.landing import Position
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.title import split_title
from gaussdecode.source.postgresql.fingerprints import Look

REASON: Final = "table_changed"
MADE_ANEW: Final = "it was dropped and made anew"
_NAMESAKE: Final = "it was dropped, and no publication has the table that has its name now"
_NOT_SENT: Final = (
    "its changes do not come any more: no publication has it, or decoding.white-table-list does not"
)
_NOT_SENT_BEFORE: Final = "changes of it did not come for a while"
_REPLACED: Final = (
    "its file was replaced by a command that the stream does not show: TRUNCATE of a partition, or "
    "ALTER TABLE (VACUUM FULL and CLUSTER, which change no row, cannot always be told from these)"
)
_UNKNOWN: Final = (
    "the mirror that the landing was fetched from does not tell what it was when its rows landed"
)
_CAME_AND_WENT: Final = (
    "partition {} was attached, detached or dropped meanwhile, and its rows went with it"
)
WAS_PARTITION: Final = "it was a partition of {}, and its rows from then are under that name"
_FORMER_NAME: Final = (
    "partitions were attached or detached, and PostgreSQL 14 sent rows of them under the name from before until the "
    "connection was renewed"
)
_CONTRADICTED: Final = (
    "rows have the columns that DDL in the stream told, and the table has others: DDL was not recorded, or "
    "somebody forged a message of it"
)
_ADVICE: Final = (
    "the stream does not show that. Compare the tables with the source, or read them again "
    "(gaussdecode snapshot CONFIG --table NAME)"
)


class OtherName(str):
    """What is said where rows of a table are under another name: no row of it is wrong."""

    __slots__ = ()


_RENAMED: Final = "it was called {} before, and its rows from then are under that name"
_MOVED: Final = OtherName(
    "it had another name meanwhile, and rows from then are not under this one"
)
Json = dict[str, Any]  # Any: JSON
Told = Callable[[TableState, TableState, int | None], bool]
"""Whether DDL of the stream tells the values that older rows have in a column that was altered or added, given the
table before and now, and its number; with None, whether it tells why the table's file was replaced."""


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """The states that everything landed so far goes by.

    Attributes:
        tables: tables by OID, all that land.
        types: types by OID, of what their columns are made of.
        gone: titles by OID of tables that landed once, and exist, but are not sent any more.
        came: titles by OID under which rows came, of tables that had another title when that was seen.
    """

    tables: Tables = dataclasses.field(default_factory=Tables)
    types: Mapping[int, TypeState] = dataclasses.field(default_factory=dict)
    gone: Mapping[int, str] = dataclasses.field(default_factory=dict)
    came: Mapping[int, str] = dataclasses.field(default_factory=dict)

    def to_record(self) -> Json:
        """Make it fit for JSON."""
        return {
            "tables": self.tables.to_record(),
            "types": {str(oid): of.to_record() for oid, of in self.types.items()},
            "gone": {str(oid): title for oid, title in self.gone.items()},
            "came": {str(oid): title for oid, title in self.came.items()},
        }

    @classmethod
    def from_record(cls, record: Json) -> Self:
        """Read what `to_record` wrote."""
        return cls(
            Tables.from_record(record["tables"]),
            {int(oid): TypeState.from_record(of) for oid, of in record["types"].items()},
            {int(oid): title for oid, title in record["gone"].items()},
            {int(oid): title for oid, title in record.get("came", {}).items()},
        )

    def with_tables(self, tables: Mapping[int, TableState]) -> Self:
        """The same, with other states of some tables."""
        return dataclasses.replace(self, tables=self.tables.changed(tables))

    @property
    def titles(self) -> dict[int, str]:
        """By OID."""
        return {oid: self.tables.title(oid) for oid in self.tables}


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """The changes of one table.

    Attributes:
        texts: the changes in words.
        former: titles that the table had before, under which its earlier rows are.
        oid: OID of the table that has the name now, where it is another one than before; else None.
        comes_whole: all rows of that one come in the stream, under this name.
        table_oid: OID of the table itself, where it is certain.
    """

    texts: tuple[str, ...]
    former: frozenset[str] = frozenset()
    oid: int | None = None
    comes_whole: bool = False
    table_oid: int | None = None

    def and_then(self, later: "Change") -> "Change":
        """This one, and another of the same table after it."""
        texts = (*self.texts, *(text for text in later.texts if text not in self.texts))
        is_same = not self.texts or self.table_oid == later.table_oid
        table_oid = later.table_oid if is_same else None
        former = self.former | later.former
        return Change(texts, former, later.oid or self.oid, later.comes_whole, table_oid)

    @property
    def is_rename(self) -> bool:
        """Nothing is said but that rows of the table are under another name."""
        return all(isinstance(text, OtherName) for text in self.texts)

    @property
    def misses_rows(self) -> bool:
        """The table has rows that no stream had, whether any has come or not."""
        return any(isinstance(text, MissingRows) for text in self.texts)

    @property
    def is_of_publication(self) -> bool:
        """It only began, or ceased, to be sent."""
        return set(self.texts) <= {_NOT_SENT, _NOT_SENT_BEFORE}


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """The result of a comparison.

    Attributes:
        changes: changes by title, of tables that readers may see wrong rows of.
        known: the states to remember once these are in the log.
        unsure: OIDs of tables of which a TRUNCATE may come that explains what was seen.
    """

    changes: Mapping[str, Change]
    known: Known
    unsure: frozenset[int] = frozenset()


def compare(
    known: Known,
    look: Look,
    *,
    is_emptied: Callable[[str], bool] = lambda _: False,
    is_left_out: Callable[[str, int], bool] = lambda _title, _oid: False,
    has_other: Callable[[str, int], bool] = lambda _title, _oid: False,
    is_told: Told = lambda *_: False,
) -> Compared:
    """Compare.

    Args:
        known: the states before.
        look: the new reading; something was read.
        is_emptied: whether a TRUNCATE of a table has shown meanwhile, given its title.
        is_left_out: whether a table is left out of the landing anyway, given title and OID.
        has_other: whether rows under a title cannot all be of the table that has it now, given title and OID.
        is_told: what DDL of the stream tells.
    """
    assert look.listed is not None
    wanted = {oid for oid, of in look.listed.items() if not is_left_out(of.title, oid)}
    left = {oid: known.tables[oid] for oid in known.tables if oid not in wanted}
    dropped = {table.title for oid, table in left.items() if oid not in look.listed}
    seen = wanted & look.tables.keys()
    partitions = {} if seen <= known.tables.keys() else _partitions(known)
    changes: dict[str, list[str]] = {}
    others: dict[str, TableState] = {}  # made anew, by title
    former: dict[str, str] = {}  # by title
    oids: dict[str, int] = {}  # by title
    tables: dict[int, TableState] = {}  # that changed
    unsure: set[int] = set()
    for oid in seen:
        before, now = known.tables.get(oid), look.tables[oid]
        if before is None:
            text = _said_of_new(known, now, partitions, dropped, has_other)
            if text is not None:
                changes[now.title] = [text]
                others[now.title] = now
            if text is not None or not (now.can_be_unlogged or now.is_root):
                tables[oid] = now  # it may be older than its place in a publication
                continue
            before = dataclasses.replace(now, files=as_created(now, now.files))
        if before.title != now.title:
            former[now.title] = before.title
        found, tables[oid], is_unsure = _changed(known, look, before, now, is_emptied, is_told)
        if found:
            changes[now.title], oids[now.title] = found, oid
        if is_unsure:
            unsure.add(oid)
    counts = {title: len(texts) for title, texts in changes.items()}
    gone = _gone(known, left, look, wanted, changes, is_left_out)
    now_known = known.tables.changed(tables, left)
    said = {
        title: dataclasses.replace(
            _change(texts, others.get(title), former.get(title)),
            table_oid=oids.get(title) if counts.get(title) == len(texts) else None,
        )
        for title, texts in changes.items()
    }
    return Compared(said, Known(now_known, _types(known, look, now_known), gone), frozenset(unsure))


def _partitions(known: Known) -> dict[int, str]:
    """Titles of partitioned tables, by the OIDs of their files."""
    roots = (table for table in known.tables.values() if table.is_root)
    return {oid: root.title for root in roots for oid in root.files}


def _changed(
    known: Known,
    look: Look,
    before: TableState,
    now: TableState,
    is_emptied: Callable[[str], bool],
    is_told: Told,
) -> tuple[list[str], TableState, bool]:
    """What changed of a table, its state from now on, and whether a TRUNCATE may still explain it."""
    told = functools.partial(is_told, before, now)
    found = differences(before, now, known.types, look.types, told)
    if before.title != now.title:
        found.insert(0, OtherName(_RENAMED.format(before.title)))
    came = as_created(now, now.files.keys() - before.files.keys())
    before = dataclasses.replace(before, files={**before.files, **came})
    replaced = why_replaced(before, now, is_emptied=is_emptied(now.title))
    if replaced is not Replaced.NO and is_told(before, now, None):
        replaced = Replaced.NO
    if replaced is Replaced.HIDDEN:
        found.append(_REPLACED)
    is_unsure = replaced is Replaced.UNSURE and not found
    return found, with_files_of(before, now) if is_unsure else now, is_unsure


def _types(known: Known, look: Look, tables: Mapping[int, TableState]) -> dict[int, TypeState]:
    """The types that tables use."""
    types = {**known.types, **look.types}
    if not types:
        return {}
    used = {oid for table in tables.values() for oid in types_of(table, types)}
    return {oid: of for oid, of in types.items() if oid in used}


def _said_of_new(
    known: Known,
    now: TableState,
    partitions: Mapping[int, str],
    dropped: AbstractSet[str],
    has_other: Callable[[str, int], bool],
) -> str | None:
    """What is said of a table that was not known, but for what became of its files; None for nothing."""
    if now.oid in known.gone:
        return _NOT_SENT_BEFORE
    if now.title in dropped or has_other(now.title, now.oid):
        return MADE_ANEW
    above = next((partitions[oid] for oid in now.files if oid in partitions), None)
    return None if above is None else MissingRows(WAS_PARTITION.format(above))


def _change(texts: list[str], now: TableState | None, former: str | None) -> Change:
    if now is not None and texts == [MADE_ANEW]:
        return made_anew(now)
    return Change(tuple(texts), frozenset(() if former is None else (former,)))


def made_anew(now: TableState) -> Change:
    """Another table has the name now."""
    return Change((MADE_ANEW,), oid=now.oid, comes_whole=now.comes_whole)


def _gone(
    known: Known,
    left: Mapping[int, TableState],
    look: Look,
    wanted: set[int],
    changes: dict[str, list[str]],
    is_left_out: Callable[[str, int], bool],
) -> dict[int, str]:
    """Tables that are not sent any more: say so, and give those that exist, titles by OID."""
    named = set(look.there.values())
    gone = {
        oid: title for oid, title in known.gone.items() if oid in look.there and oid not in wanted
    }
    assert look.listed is not None
    sent = {look.listed[oid].title for oid in wanted}
    for oid, table in left.items():
        if is_left_out(table.title, oid):
            continue
        if oid in look.there:
            gone[oid] = table.title
            changes.setdefault(table.title, []).append(_NOT_SENT)
        elif table.title in named and table.title not in sent:
            changes.setdefault(table.title, []).append(_NAMESAKE)
    return gone


def as_created(now: TableState, oids: Iterable[int]) -> dict[int, FileState]:
    """Files of a table as the server made them, of those that were there from its beginning or came empty.

    A file has the number of its table until it is replaced.
    """
    return {
        oid: dataclasses.replace(file, file_node=oid) if file.kind == TABLE else file
        for oid, file in ((oid, now.files[oid]) for oid in oids)
        if oid == now.oid or (file.kind == TABLE and file.is_attached_empty)
    }


def with_files_of(before: TableState, now: TableState) -> TableState:
    """The state now, with the files of before where these were replaced."""
    replaced = replaced_files(before, now)
    files = {
        oid: dataclasses.replace(file, file_node=before.files[oid].file_node)
        if oid in replaced
        else file
        for oid, file in now.files.items()
    }
    return dataclasses.replace(now, files=files)


def judge_unsure(
    known: Known, unsure: Iterable[int], *, is_emptied: Callable[[str], bool]
) -> dict[str, Change]:
    """Say which tables were not emptied, of those that a TRUNCATE was to explain, now that all has come."""
    titles = (known.tables[oid].title for oid in unsure if oid in known.tables)
    return {title: Change((_REPLACED,)) for title in titles if not is_emptied(title)}


def suspect(
    changes: Mapping[str, Change],
    from_lsn: int,
    until_lsn: int,
    since: Mapping[str, Position] = MappingProxyType({}),
) -> Json:
    """Make the text of a suspect entry.

    Args:
        changes: changes by title; at least one.
        from_lsn: everything up to here landed before.
        until_lsn: position of the server after the change was noticed.
        since: by title, where the first DDL command on the table stands that may have done it.
    """
    told = [f"{title}: {', '.join(change.texts)}" for title, change in sorted(changes.items())]
    directories = {title: table_directory(*split_title(title)) for title in changes}
    return {
        "reason": REASON,
        "text": f"{'; '.join(told)}. Between {Lsn(from_lsn)} and {Lsn(max(from_lsn, until_lsn))}; {_ADVICE}",
        "from_lsn": from_lsn,
        "until_lsn": max(from_lsn, until_lsn),
        "tables": sorted(directories.values()),
        "is_any_table": False,
        "changes": {
            directories[title]: {
                "text": ", ".join(change.texts),
                "oid": change.oid,
                "comes_whole": change.comes_whole,
                **({} if change.table_oid is None else {"table_oid": change.table_oid}),
                **({"is_rename": True} if change.is_rename else {}),
                **({"since": [at.lsn, at.seq]} if (at := since.get(title)) else {}),
            }
            for title, change in changes.items()
        },
        "transactions": [],
    }


def moved_change(names: Iterable[str], oid: int) -> Change:
    """Rows of a table came under several names."""
    return Change((_MOVED,), frozenset(names), table_oid=oid)


def gone_change(partitions: Iterable[str]) -> Change:
    """Rows of partitions came that the table does not have."""
    names = ", ".join(sorted(partitions))
    return Change((_CAME_AND_WENT.format(names),))


def partition_change(of: str) -> Change:
    """A partition became a table of its own."""
    return Change((MissingRows(WAS_PARTITION.format(of)),))


def contradicted_change() -> Change:
    """The columns of rows are those of a message that is not true."""
    return Change((_CONTRADICTED,))


def former_name_change() -> Change:
    """Rows may have come under another name than the one they belong to."""
    return Change((_FORMER_NAME,))


def renamed_rows(before: Mapping[int, TableState], seen: Mapping[int, TableState]) -> set[str]:
    """Titles of tables whose rows have another name since partitions were attached or detached.

    Args:
        before: states by OID.
        seen: those that are other than before.
    """
    parts = {oid: of.title for of in before.values() if of.is_root for oid in of.files}
    found: set[str] = set()
    for oid, now in seen.items():
        known = before.get(oid)
        if not now.is_root:
            above = parts.get(oid)
            found |= set() if above is None else {above, now.title}
            continue
        moved = now.files.keys() if known is None else now.files.keys() ^ known.files.keys()
        existed = {before[part].title for part in moved if part in before and part != oid}
        left = set() if known is None else known.files.keys() - now.files.keys()
        if existed or left:
            found |= {now.title, *existed, *(known.files[part].title for part in left if known)}
    return found


def unknown_change() -> Change:
    """The change of a table whose earlier state is not known."""
    return Change((_UNKNOWN,))
