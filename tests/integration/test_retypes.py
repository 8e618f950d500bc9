"""Every change of a type that a server makes without ``USING``: the target has its values, or stands still.

Types and values are crossed: what the server takes is tried, as a column and as a key, altered by a session
with unusual settings, while the old rows are in the target already.
"""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Final

import psycopg
import pytest
from kit import landing, targets
from kit.daemon import Daemon
from kit.postgres import Database

from gaussdecode.model.retype import Typed, is_exact

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]

_VALUES: Final[dict[str, tuple[str, ...]]] = {
    "smallint": ("0", "-32768", "32767"),
    "integer": ("0", "-7", "32000", "2147483647"),
    "bigint": ("0", "-9007199254740993", "42"),
    "real": ("0", "-0", "0.1", "1.005", "3.4e38", "1e-40", "NaN", "-Infinity"),
    "double precision": ("0", "1.005", "0.30000000000000004", "NaN"),
    "numeric": ("0", "1.50", "123.456789", "-7", "NaN"),
    "numeric(10,2)": ("0", "1.50", "-12345678.99"),
    "numeric(10,1)": ("0.5", "-9.9"),
    "numeric(12,2)": ("0.05", "9999999999.99"),
    "numeric(14,4)": ("1.0005", "-3"),
    "text": ("", "a ", "é", "12"),
    "varchar": ("", "b ", "12"),
    "varchar(5)": ("", "c  ", "12345"),
    "varchar(9)": ("d", "123456789"),
    "char(5)": ("e", "12"),
    "name": ("n", "é"),
    "uuid": ("00112233-4455-6677-8899-AABBCCDDEEFF",),
    "json": ('{"b": 1,  "a": 1.0}',),
    "jsonb": ('{"b": 1,  "a": 1.0}',),
    "xml": ('<a b="1" />',),
    "bit varying": ("", "101"),
    "bit varying(3)": ("1", "101"),
    "bit varying(8)": ("10101010",),
    "timestamp": ("2026-03-08 02:30:00.123456", "infinity", "0044-03-15 12:00:00 BC"),
    "timestamp(3)": ("2026-11-01 01:30:00.1234",),
    "timestamp(0)": ("2026-01-31 23:59:59.6",),
    "timestamptz": ("2026-11-01 05:30:00.999999+00", "-infinity"),
    "timestamptz(2)": ("2026-03-08 07:00:00.126+00",),
    "time": ("24:00:00", "12:00:00.123456"),
    "time(1)": ("23:59:59.96",),
    "timetz": ("12:00:00.5+05:45",),
    "timetz(0)": ("12:00:00.5-03",),
    "date": ("2026-01-31", "infinity"),
    "interval": ("1 mon -2 days 03:00:00.5",),
    "inet": ("192.168.0.1/32", "10.0.0.0/8"),
    "cidr": ("10.0.0.0/8",),
    "boolean": ("t", "f"),
    "bytea": (r"\x00ff",),
    "money": ("1.5",),
    "oid": ("7", "4000000000"),
}
_NO_KEYS: Final = ("json", "xml")
_SETTINGS: Final = (
    "SET timezone = 'America/New_York'; SET datestyle = 'German, DMY'; SET intervalstyle = iso_8601; "
    "SET extra_float_digits = -3; SET bytea_output = escape; SET xmloption = content"
)


@pytest.mark.parametrize("postgres", [14, 18], indirect=True)
def test_every_pair(database: Database, make_daemon: MakeDaemon, tmp_path: Path) -> None:
    """What the list calls known is equal, also as a key; what it does not call so is said before."""
    pairs = _make_tables(database)
    database.create_slot()
    with make_daemon(database) as daemon, database.connect() as session:
        for title, (old, _) in pairs.items():
            _insert(session, title, old)
        daemon.catch_up()
        session.execute(_SETTINGS)
        altered: dict[str, tuple[bool, bool]] = {}
        for title, (_, new) in pairs.items():
            before, file = _typed(session, title)
            try:
                session.execute(f"ALTER TABLE {title} ALTER v TYPE {new}")
            except psycopg.Error:
                continue
            after, new_file = _typed(session, title)
            altered[title] = (is_exact(before, after), file != new_file)
            session.execute(f"UPDATE {title} SET n = 1 WHERE id % 2 = 0")
            session.execute(f"DELETE FROM {title} WHERE id = 1")
        daemon.catch_up()
        assert daemon.stop() == 0
    target = tmp_path / "target"
    summary = targets.apply_local(daemon.root, target)
    found = targets.compare(database, summary, target)
    assert found.different == {}
    accepted = targets.apply_local(daemon.root, tmp_path / "accepted", accept_suspects=True)
    at_once = targets.compare(database, accepted, tmp_path / "accepted")
    assert at_once.different == {}
    entries = landing.read_entries(daemon.root)
    named = {t for e in entries if e["kind"] == "suspect" for t in e["extra"]["tables"]}
    wrong = []
    for title, (is_known, is_rewritten) in altered.items():
        full = f"public.{title}"
        may_go_on = (
            is_known and not is_rewritten
        )  # where it was rewritten, USING may have been used
        seen = (full not in named, full in found.equal, full in at_once.equal)
        if seen != (may_go_on, may_go_on, is_known):
            wrong.append(
                f"{title}: {' to '.join(pairs[title])} {is_known=} {is_rewritten=} {seen=}"
            )
    assert not wrong, "\n".join(wrong)
    known = sum(is_known for is_known, _ in altered.values())
    print(known, "pairs known,", len(altered) - known, "not")
    assert known > 80
    assert len(altered) - known > 100
    assert summary.unmatched == {}


def _make_tables(database: Database) -> dict[str, tuple[str, str]]:
    """A table for each pair, and one more where the column can be a key; give types by title."""
    pairs: dict[str, tuple[str, str]] = {}
    with database.connect() as session:
        for i, (old, new) in enumerate(product(_VALUES, _VALUES)):
            if old == new or not _is_taken(session, old, new):
                continue
            pairs[f"p_{i}"] = (old, new)
            session.execute(f"CREATE TABLE p_{i} (id int PRIMARY KEY, n int, v {old})")
            if not {old, new} & set(_NO_KEYS):
                pairs[f"k_{i}"] = (old, new)
                session.execute(f"CREATE TABLE k_{i} (id int, n int, v {old} PRIMARY KEY)")
    return pairs


def _is_taken(session: psycopg.Connection, old: str, new: str) -> bool:
    session.execute(f"CREATE TABLE tried (v {old})")
    try:
        session.execute(f"ALTER TABLE tried ALTER v TYPE {new}")
    except psycopg.Error:
        return False
    finally:
        session.execute("DROP TABLE tried")
    return True


def _insert(session: psycopg.Connection, title: str, old: str) -> None:
    values = ", ".join(f"({i}, 0, '{v}')" for i, v in enumerate(_VALUES[old]))
    session.execute(f"INSERT INTO {title} VALUES {values} ON CONFLICT DO NOTHING")
    if title.startswith("p_"):
        session.execute(f"INSERT INTO {title} VALUES (98, 0, NULL), (99, 0, NULL)")


def _typed(session: psycopg.Connection, title: str) -> tuple[Typed, int]:
    """The type of column ``v``, and the file of the table."""
    row = session.execute(
        "SELECT format_type(atttypid, NULL), atttypmod, pg_relation_filenode(attrelid) FROM pg_attribute "
        f"WHERE attrelid = '{title}'::regclass AND attname = 'v'"
    ).fetchone()
    assert row is not None
    return (row[0], row[1]), row[2]
