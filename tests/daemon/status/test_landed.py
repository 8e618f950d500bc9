"""Tests for `gaussdecode.daemon.status.landed`."""

import dataclasses
import datetime as dt

from gaussdecode.daemon.status.landed import COMMITS, OTHERS, TABLES, Landed
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, LandingFile, Position, SourcePosition

TIME = dt.datetime(2026, 1, 31, tzinfo=dt.UTC)


def landed_file(table: str, rows: int) -> LandingFile:
    """A file of inserts."""
    first, last = Position(1, 0), Position(1, rows)
    path = f"data/{table}/gd_date=2026-01-31/f.parquet"
    return LandingFile(
        table, path, rows, 10 * rows, first, last, "s", {"I": rows},
        has_unchanged=False, has_key_change=False, checksum="sha256:0",
    )  # fmt: skip


def entry(n: int, *files: LandingFile, kind: EntryKind = EntryKind.DATA) -> CommitEntry:
    """An entry with these files."""
    positions = {"orders": SourcePosition(1, 1, 100 + n)}
    return CommitEntry(
        n=n,
        kind=kind,
        previous="",
        positions=positions,
        committed_time=TIME,
        mtime_ms=0,
        files=files,
    )


def test_rows_are_counted_by_table() -> None:
    """Over all files and entries, most rows first, under the server's name."""
    landed = Landed()
    landed.add(entry(1, landed_file("public.a%20b", 3), landed_file("public.c", 9)))
    landed.add(entry(2, landed_file("public.a%20b", 4)))
    first, second = landed.tables()
    assert (first.name, first.rows) == ("public.c", 9)
    assert (second.name, second.rows, second.bytes, second.files) == ("public.a b", 7, 70, 2)
    assert (dict(second.ops), second.entry) == ({"I": 7}, 2)


def test_merged_files_are_not_counted_again() -> None:
    """Compaction brings no rows."""
    landed = Landed()
    landed.add(entry(1, landed_file("public.a", 3), kind=EntryKind.COMPACT))
    assert landed.tables() == []
    assert landed.commits()[0].rows == 3


def test_memory_is_bounded() -> None:
    """Past so many tables the rest is one; only the newest publications stay."""
    landed = Landed()
    for n in range(TABLES + 10):
        landed.add(entry(n, landed_file(f"public.t{n}", 1)))
    tables = landed.tables()
    assert len(tables) == TABLES + 1
    assert (tables[0].name, tables[0].rows) == (OTHERS, 10)
    commits = landed.commits()
    assert (len(commits), commits[0].n) == (COMMITS, TABLES + 9)


def test_gaps_and_suspects_are_counted() -> None:
    """They are alarms."""
    landed = Landed()
    landed.add(entry(1, kind=EntryKind.GAP))
    landed.add(entry(2, kind=EntryKind.SUSPECT))
    landed.add(entry(3, kind=EntryKind.SUSPECT))
    assert (landed.count(EntryKind.GAP), landed.count(EntryKind.SUSPECT)) == (1, 2)


def test_a_suspect_entry_ends_when_all_of_its_tables_were_read_again() -> None:
    """By snapshots taken after it, whole ones; one that may mean any table, with the order of all."""
    landed = Landed()

    def suspect(n: int, *tables: str, is_any: bool) -> None:
        said = {"tables": list(tables), "is_any_table": is_any}
        landed.add(dataclasses.replace(entry(n, kind=EntryKind.SUSPECT), extra=said))

    def read(n: int, since_n: int, *tables: str, where: str | None = None) -> None:
        of = {table: {"since_n": since_n, "where": where} for table in tables}
        said = {"snapshot": {"tables": of}}
        landed.add(dataclasses.replace(entry(n, kind=EntryKind.SNAPSHOT), extra=said))

    def unread(read_n: int = -1) -> int:
        return landed.unread_suspects(lambda _: read_n)

    assert unread() == 0
    suspect(5, "public.a", "public.b", is_any=False)
    read(6, 4, "public.a", "public.b")
    read(7, 5, "public.a", "public.b", where="id > 3")
    read(8, 5, "public.a")
    assert unread() == 1
    read(9, 5, "public.b", "public.c")
    assert unread() == 0
    assert landed.count(EntryKind.SUSPECT) == 1
    suspect(10, "public.a", is_any=True)
    read(11, 10, "public.a")
    assert unread() == unread(9) == 1
    assert unread(10) == 0, "all tables were ordered, and have landed"
