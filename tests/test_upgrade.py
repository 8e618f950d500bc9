"""What a released version wrote goes on under this one; what a newer one wrote is refused in a sentence.

``tests/data/VERSION.tar.xz`` is of that version; ``tests/data/make.py`` makes it.
"""

import json
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from kit import canon
from kit.applied import newest
from kit.commands import Result, Run
from kit.daemon import Daemon
from kit.landing import position, read_entries

from gaussdecode.demo.ports import free_port
from gaussdecode.errors import EX_CONFIG
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.files import Files
from gaussdecode.land.layout import Layout
from gaussdecode.land.space import SpaceWait
from gaussdecode.land.writer import Writer
from gaussdecode.model.account import Account
from gaussdecode.model.landing import EntryKind, SourcePosition
from gaussdecode.model.request import EntryRequest
from gaussdecode.model.seal import canonical_json, sealed
from gaussdecode.spark.log.schema import parse_type
from gaussdecode.spark.target.store import Target

ARCHIVES: Final = sorted((Path(__file__).parent / "data").glob("*.tar.xz"))


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Landing, mirror, tables and facts of a version."""
    with tarfile.open(request.param) as tar:
        tar.extractall(tmp_path, filter="data")
    return tmp_path


def facts_of(kept: Path) -> Any:  # Any: JSON
    return json.loads((kept / "facts.json").read_text())


def check_tables(kept: Path, target: Path) -> None:
    """The tables have the rows of the source, value for value."""
    facts = facts_of(kept)
    store = Target(target)
    database = store.database()
    assert database is not None
    assert database.n == facts["n"]
    for table, expected in facts["rows"].items():
        schema, rows = newest(store, f"public.{table}")
        names = {column.true_name: column for column in schema.columns}
        assert set(names) == set(expected[0])
        found = []
        for row in rows:
            raw = dict(row.get("gd_raw") or ())
            found.append(
                {
                    name: raw.get(name, canon.of_value(row[of.name], parse_type(of.type)))
                    for name, of in names.items()
                }
            )
        wanted = [
            {name: canon.of_text(text, parse_type(names[name].type)) for name, text in row.items()}
            for row in expected
        ]
        assert sorted(map(repr, found)) == sorted(map(repr, wanted)), table


def daemon_of(kept: Path, **landing: object) -> Daemon:
    """A daemon over the landing, whose server does not answer."""
    dsn = f"host=127.0.0.1 port={free_port()} dbname=kept user=postgres"
    database: Any = SimpleNamespace(
        name="kept", slot="kept", publication="kept", dsn=dsn, senders=lambda: ""
    )
    return Daemon(database, kept, config={"landing": landing})


def test_verify(kept: Path, run: Run) -> None:
    """No fault is found, in the landing and in its mirror."""
    for place in ("landing", "mirror"):
        result = run("verify", str(kept / place))
        assert result.status == 0, result.err


@pytest.mark.parametrize("target", ["tables", "new"])
@pytest.mark.parametrize("landing", ["landing", "mirror"])
def test_tables_go_on(kept: Path, run: Run, landing: str, target: str) -> None:
    """From where that version stopped, or from the start."""
    place = str(kept / landing) if landing == "landing" else f"file://{kept}/{landing}"
    result = run("spark", "apply", place, str(kept / target), "--local")
    assert result.status == 0, result.err
    check_tables(kept, kept / target)


@pytest.mark.parametrize("is_lost", [False, True], ids=["same host", "from the mirror"])
def test_a_daemon_goes_on(kept: Path, run: Run, is_lost: bool) -> None:
    """It recovers the landing, is at the position of that version, and waits for its server."""
    before = read_entries(kept / "landing")
    if is_lost:
        shutil.rmtree(kept / "landing")
    daemon = daemon_of(kept, mirror={"url": f"file://{kept}/mirror"})
    with daemon:
        daemon.wait_while_running(
            lambda: (daemon.status() or {}).get("state") not in {None, "starting"}, "recovery"
        )
        assert daemon.durable_lsn() == position(before[-1])
        assert daemon.stop() == 0
    after = read_entries(kept / "landing")
    assert after[: len(before)] == before
    assert [entry["kind"] for entry in after[len(before) :]] == ["fork"] * is_lost
    assert run("verify", str(kept / "landing")).status == 0


def test_the_log_goes_on(kept: Path, run: Run) -> None:
    """The next entry follows that version's last one, and an apply takes it."""
    n = facts_of(kept)["n"]
    append(kept / "landing")
    entries = read_entries(kept / "landing")
    assert [entry["n"] for entry in entries[-2:]] == [n, n + 1]
    assert run("verify", str(kept / "landing")).status == 0
    result = run("spark", "apply", str(kept / "landing"), str(kept / "tables"), "--local")
    assert result.status == 0, result.err
    database = Target(kept / "tables").database()
    assert database is not None
    assert database.n == n + 1


def append(root: Path) -> None:
    """Land a position without changes."""
    (identity,) = Layout.from_bytes((root / "layout.json").read_bytes()).sources.values()
    log = CommitLog.open(Files(root), identity, space=SpaceWait(), writer="later")
    try:
        position = log.position
        assert position is not None
        writer = Writer(log, lanes=1, on_durable=lambda _: None, on_error=lambda _: None)
        try:
            intake = writer.begin()
            later = SourcePosition(position.epoch, position.timeline, position.lsn + 8)
            came = {"transactions": 1}
            since, until = (position.epoch, position.lsn), (later.epoch, later.lsn)
            account = Account(since, until, came, {}, {"empty": came})
            intake.commit(EntryRequest(kind=EntryKind.IDLE, position=later, account=account))
            writer.drain()
        finally:
            writer.close()
    finally:
        log.close()


COMMANDS: Final[dict[str, Callable[[Path], tuple[str, ...]]]] = {
    "verify": lambda kept: ("verify", str(kept / "landing")),
    "gaps": lambda kept: ("gaps", str(kept / "landing")),
    "apply": lambda kept: ("spark", "apply", str(kept / "landing"), str(kept / "new"), "--local"),
    "status": lambda kept: ("spark", "status", str(kept / "landing"), str(kept / "tables")),
}


@pytest.mark.parametrize("name", ["run", *COMMANDS])
def test_a_landing_of_a_newer_layout_is_refused(kept: Path, run: Run, name: str) -> None:
    """With both versions and what to do; nothing of it changes."""
    rewrite(kept / "landing" / "layout.json", version=2)
    files = content(kept / "landing")
    if name == "run":
        daemon = daemon_of(kept).start()
        result = Result(daemon.wait(), "", daemon.log_tail(1))
    else:
        result = run(*COMMANDS[name](kept))
    assert result.status == EX_CONFIG
    assert re.search(r"layout.json: .*version 2, this program reads .*\b1\b.*use ", result.err)
    assert "Traceback" not in result.err
    assert content(kept / "landing") == files


@pytest.mark.parametrize("field", ["version", "layout"])
@pytest.mark.parametrize("name", ["apply", "status", "compact", "vacuum"])
def test_a_newer_target_is_refused(kept: Path, run: Run, name: str, field: str) -> None:
    """The same of the tables: another version of the file, or of the target's own layout."""
    path = kept / "tables" / "target.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, field: record[field] + 1}))
    files = content(kept / "tables")
    places = [str(kept / "landing")] if name in {"apply", "status"} else []
    options = ["--local"] if name == "apply" else []
    result = run("spark", name, *places, str(kept / "tables"), *options)
    assert result.status == EX_CONFIG
    told = rf"version {record[field] + 1}, this program reads {record[field]}: .*use the version that wrote it"
    assert re.search(told, result.err), result.err
    assert content(kept / "tables") == files


def test_a_newer_table_is_refused(kept: Path, run: Run) -> None:
    """The same of one table, whose Delta log has the format."""
    table = kept / "tables/tables/public.orders/current/_delta_log"
    for path in table.glob("*.json"):
        path.write_text(path.read_text().replace(r"\"format\":1", r"\"format\":2"))
    result = run("spark", "apply", str(kept / "landing"), str(kept / "tables"), "--local")
    assert result.status == EX_CONFIG
    assert re.search(
        "format 2, this program reads 1: .*use the version that wrote it", result.err
    ), result.err


def content(root: Path) -> dict[Path, bytes]:
    """All files."""
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def rewrite(path: Path, **fields: object) -> None:
    """Change a sealed file as another program could have written it."""
    record = json.loads(path.read_bytes())
    del record["hash"]
    path.write_bytes(sealed(canonical_json({**record, **fields})))
