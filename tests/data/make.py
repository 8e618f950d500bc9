"""Write what this version of the program makes of one small history, for tests of later versions.

usage: PYTHONPATH=tests .venv/bin/python tests/data/make.py      before each release; needs PostgreSQL 15

``tests/data/VERSION.tar.xz`` has ``landing/``, its ``mirror/``, ``tables/`` with the entries up to the
middle, and ``facts.json``: the last position, and the rows of the source's tables as text.
The source records DDL.
"""

import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from kit.daemon import Daemon
from kit.oracle import OUTPUT_SETTINGS
from kit.postgres import Database, Postgres

import gaussdecode
from gaussdecode.source.postgresql.ddl import install_sql

HERE: Final = Path(__file__).parent
_BEGIN: Final = """
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE TABLE orders (id int8 PRIMARY KEY, customer text NOT NULL, total numeric(12,2), at timestamptz,
    day date, paid boolean, weight float8, note json, photo bytea, mood mood, tags text[], key uuid, wait interval);
CREATE TABLE items (order_id int8, line int4, sku varchar(20), PRIMARY KEY (order_id, line));
CREATE TABLE audit (what text, amount numeric);
ALTER TABLE audit REPLICA IDENTITY FULL;
INSERT INTO orders SELECT i, 'customer ' || i % 7, i * 1.25, '2026-01-31 12:00+00'::timestamptz + i * interval '1 h',
    date '2026-01-31' + i, i % 2 = 0, i / 3.0, '{"a": 1}', '\\x00ff', 'glad', '{a,b}', NULL, '1 day' FROM generate_series(1, 200) i;
INSERT INTO items SELECT i, 1, 'sku ' || i FROM generate_series(1, 200) i;
INSERT INTO audit VALUES ('begin', 1), ('begin', 1), (NULL, 'NaN');
"""
_MIDDLE: Final = (
    "UPDATE orders SET total = NULL, mood = 'sad' WHERE id % 10 = 0",
    "DELETE FROM orders WHERE id > 190",
    "TRUNCATE items",
    "INSERT INTO items SELECT i, 2, 'again ' || i FROM generate_series(1, 50) i",
    "UPDATE audit SET amount = 2 WHERE what = 'begin'",
    "SELECT pg_logical_emit_message(true, 'note', 'kept')",
)
_END: Final = (
    "ALTER TABLE items ADD amount int4 DEFAULT 1",
    "UPDATE items SET amount = 7 WHERE order_id < 10",
    "ALTER TABLE items RENAME sku TO article",
    "INSERT INTO items VALUES (900, 1, 'last', 3)",
    "UPDATE orders SET id = id + 1000 WHERE id < 5",
    "DELETE FROM audit WHERE amount = 'NaN'",
    "INSERT INTO orders (id, customer, at) VALUES (5000, 'edge', 'infinity')",
)
TABLES: Final = ("audit", "items", "orders")


def rows(database: Database, table: str) -> list[dict[str, str | None]]:
    """Rows of a table, each value as the server sends it."""
    with database.connect() as session:
        session.execute(OUTPUT_SETTINGS)
        result = session.execute(f"SELECT * FROM {table} ORDER BY 1, 2").pgresult
        assert result is not None
        names = [(result.fname(index) or b"").decode() for index in range(result.nfields)]
        values = [
            [result.get_value(row, column) for column in range(result.nfields)]
            for row in range(result.ntuples)
        ]
    texts = [[None if value is None else value.decode() for value in row] for row in values]
    return [dict(zip(names, row, strict=True)) for row in texts]


def make(directory: Path) -> None:
    """Make landing, mirror, tables and facts."""
    with Postgres(15) as server:
        database = Database(server, "kept")
        database.execute(_BEGIN)
        database.execute(install_sql())
        database.create_slot()
        mirror = {"mirror": {"url": f"file://{directory}/mirror"}}
        with Daemon(
            database, directory, config={"landing": mirror, "snapshot": {"mode": "initial"}}
        ) as daemon:
            daemon.wait_while_running(
                lambda: any(e["kind"] == "snapshot" for e in daemon.entries()), "rows"
            )
            daemon.catch_up()
            for statement in _MIDDLE:
                database.execute(statement)
                daemon.catch_up()
            apply = [sys.executable, "-m", "gaussdecode", "spark", "apply"]
            subprocess.run(
                [
                    *apply,
                    directory / "landing",
                    directory / "tables",
                    "--local",
                    "--history",
                    "--changelog",
                ],
                check=True,
            )
            for statement in _END:
                database.execute(statement)
                daemon.catch_up()
            assert daemon.stop() == 0
            last = daemon.entries()[-1]
            facts = {
                "n": last["n"],
                "hash": last["hash"],
                "rows": {t: rows(database, t) for t in TABLES},
            }
            (directory / "facts.json").write_text(json.dumps(facts))


def pack(directory: Path, out: Path) -> None:
    """Put it into an archive, without names and times of this machine."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = 0
        return member

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", preset=9) as tar:
        for name in ("landing", "mirror", "tables", "facts.json"):
            tar.add(directory / name, name, filter=plain)
    out.write_bytes(packed.getvalue())


def main() -> None:
    """Write the archive of this version."""
    with tempfile.TemporaryDirectory() as name:
        make(Path(name))
        out = HERE / f"{gaussdecode.__version__}.tar.xz"
        pack(Path(name), out)
        print(f"{out}: {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
