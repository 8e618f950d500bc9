"""Histories of tables that are renamed, and what a target then has in which directory."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gaussdecode.model.landing import EntryKind
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.merge import run
from gaussdecode.spark.merge.commit import commit_table
from gaussdecode.spark.merge.engine import Engine, LocalEngine
from gaussdecode.spark.merge.on_ddl import read_on_ddl
from gaussdecode.spark.merge.options import Summary
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.store import Target
from kit.ddllanding import ID, OID, Command, DdlLanding, Of, dropped

A = Of(2, "a")
OTHER = OID + 7
APPLY = "rename-table=apply"
Row = tuple[list[Of], dict[str, int], str, int]
State = dict[str, tuple[str, list[int]]]
"""Title of a table and its ids, by directory."""


def row(number: int, name: str = "t", oid: int = OID) -> Row:
    """A row of a table."""
    return [ID, A], {"id": number, "a": number}, name, oid


def renamed(name: str, oid: int = OID) -> Command:
    """ALTER TABLE ... RENAME TO."""
    return Command([ID, A], statement=f"ALTER TABLE t RENAME TO {name}", name=name, oid=oid)


class Source(DdlLanding):
    """The landing and its target."""

    def __init__(self, root: Path, engine: Engine | None = None, **options: Any) -> None:
        super().__init__(root / "landing")
        self.target = root / "target"
        self.said: list[str] = []
        self._engine, self._options = engine or LocalEngine(), options

    def apply(self, *on_ddl: str, **options: Any) -> Summary:
        """Bring the target up to the end of the log."""
        made = Options(on_ddl=read_on_ddl(on_ddl), **{**self._options, **options})
        return apply_with(self._engine, self.root, self.target, made, progress=self.said.append)

    def state(self) -> State:
        """What readers find."""
        store = Target(self.target)
        database = store.database()
        assert database is not None
        found = {}
        for table, v in database.tables.items():
            files = store.version(table, v).current
            rows = [
                row for f in files for row in current_rows(store.table_root(table), f).to_pylist()
            ]
            title = store.schema_at(database, table).title
            found[table] = title, sorted(row["id"] for row in rows)
        return found

    def doubt(self, *names: str, **more: Any) -> None:
        """A suspect entry."""
        said = {
            "is_any_table": False, "tables": [f"public.{name}" for name in names], "text": "wrong rows",
            "changes": {f"public.{name}": {"text": "wrong rows", **more} for name in names},
        }  # fmt: skip
        self.writer.entry(EntryKind.SUSPECT, self.lsn, extra=said)


def in_steps(source: Source, steps: list[list[Any]], *, is_together: bool) -> None:
    """Land each step as a transaction, and apply after each, or once at the end."""
    for items in steps:
        if not is_together:
            source.apply(APPLY)
        source.land(*items)
    assert source.apply(APPLY).stopped == {}
    assert source.apply().stopped == {}


def dying_commit(count: int) -> Callable[..., None]:
    """Commit some tables, and die before the next one."""
    left = [None] * count

    def commit(*args: Any) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        commit_table(*args)

    return commit


@contextlib.contextmanager
def killed(monkeypatch: pytest.MonkeyPatch, count: int = 1) -> Iterator[None]:
    """The apply dies after it has committed some tables."""
    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(run, "commit_table", dying_commit(count))
        yield


RENAMED = {"public.t": ("public.u", [1, 2, 3])}
CASES: dict[str, tuple[list[list[Any]], State]] = {
    "renamed": ([[row(2), renamed("u"), row(3, "u")]], RENAMED),
    "without a row": ([[renamed("u")]], {"public.t": ("public.u", [1])}),
    "not told": ([[row(2)], [row(3, "u")]], RENAMED),
    "back": (
        [[renamed("u"), row(2, "u")], [row(3, "u"), renamed("t"), row(4)]],
        {"public.t": ("public.t", [1, 2, 3, 4])},
    ),
    "there and back at once": (
        [[renamed("u"), row(2, "u"), renamed("t"), row(3)]],
        {"public.t": ("public.t", [1, 2, 3])},
    ),
    "another takes the old name": (
        [[renamed("u"), row(2, "t", OTHER), row(3, "u")], [row(4, "t", OTHER)]],
        {"public.t": ("public.u", [1, 3]), f"public.t_{OTHER}": ("public.t", [2, 4])},
    ),
    "the other one is renamed too": (
        [[renamed("u"), row(2, "t", OTHER)], [renamed("v", OTHER), row(3, "v", OTHER), row(4, "u")]],
        {"public.t": ("public.u", [1, 4]), f"public.t_{OTHER}": ("public.v", [2, 3])},
    ),
    "a third one takes over what the second left": (
        [[renamed("u"), row(2, "t", OTHER)], [dropped("t", OTHER)], [row(3, "t", OTHER + 1)], [row(4, "u")]],
        {"public.t": ("public.u", [1, 4]), f"public.t_{OTHER}": ("public.t", [3])},
    ),
    "exchanged": (
        [[row(2, "u", OTHER)],
         [renamed("x"), renamed("t", OTHER), renamed("u"), row(3, "u"), row(4, "t", OTHER)], [row(5, "u")]],
        {"public.t": ("public.u", [1, 3, 5]), "public.u": ("public.t", [2, 4])},
    ),
    "exchanged without a row": (
        [[row(2, "u", OTHER)], [renamed("x"), renamed("t", OTHER), renamed("u")]],
        {"public.t": ("public.u", [1]), "public.u": ("public.t", [2])},
    ),
    "onto the name of a dropped table": (
        [[row(2, "u", OTHER)], [dropped("u", OTHER)], [renamed("u"), row(3, "u")]],
        {"public.t": ("public.u", [1, 3]), "public.u": ("public.u", [2])},
    ),
    "a table of the new name is made anew": (
        [[renamed("u")], [dropped("u")], [row(2, "u", OTHER)]],
        {"public.t": ("public.u", [2])},
    ),
    "to a name of which no OID was known": (
        [[row(2, "u", 0)], [row(3, "u")]],
        {"public.t": ("public.u", [1, 3]), "public.u": ("public.u", [2])},
    ),
    "an OID that is known later": (
        [[row(2, "v", 0)], [row(3, "v", OTHER)], [renamed("w", OTHER), row(4, "w", OTHER)], [row(5, "w", OTHER)]],
        {"public.t": ("public.t", [1]), "public.v": ("public.w", [2, 3, 4, 5])},
    ),
    "an OID that is known at the rename": (
        [[row(2, "v", 0)], [row(3, "v", OTHER), renamed("w", OTHER), row(4, "w", OTHER)], [row(5, "w", OTHER)]],
        {"public.t": ("public.t", [1]), "public.v": ("public.w", [2, 3, 4, 5])},
    ),
    "without OIDs": (
        [[row(2, "v", 0), row(3, "z", 0)], [row(4, "v", 0), row(5, "z", 0)]],
        {"public.t": ("public.t", [1]), "public.v": ("public.v", [2, 4]), "public.z": ("public.z", [3, 5])},
    ),
    "another without an OID takes the old name": (
        [[renamed("u"), row(2, "u")], [row(3, "t", 0)], [row(4, "t", 0), row(5, "u")]],
        {"public.t": ("public.u", [1, 2, 5]), "public.t_0": ("public.t", [3, 4])},
    ),
    "with other columns": (
        [[Command([ID], name="u"), ([ID], {"id": 2}, "u", OID)]],
        {"public.t": ("public.u", [1, 2])},
    ),
}  # fmt: skip
