"""Recordings of GaussDB that land in the order of CSNs."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from kit import landing, realstream
from kit.commands import Run
from kit.gaussdaemon import GaussDatabase, lands
from kit.gaussprofile import V6_0_0
from kit.gaussserver import GaussServer
from kit.gaussstore import Table

from gaussdecode.collect.arrow import TRANSACTIONS
from gaussdecode.errors import EX_CONFIG, EX_OK, EX_PROTOCOL
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.store import Target

pytestmark = pytest.mark.integration
MakeGauss = Callable[..., GaussServer]
NO_IDENTITY = {"public.t_nopk", "public.t_nothing"}  # no deletion of theirs says of which row
COLUMNS = {"id": "int8", "v": "text"}
Place = tuple[int, int, int]  # CSN, end of the commit record, seq


def commit_at_random(gauss: GaussServer, table: Table, rng: Random, count: int) -> None:
    """Transactions whose CSNs are drawn in one order, and whose records are written in another."""
    number = len(gauss.store.committed) * 1000
    for _ in range(count):
        group = [gauss.store.begin() for _ in range(rng.randint(1, 5))]
        for transaction in group:
            for _ in range(rng.choice((1, 1, 2, 30))):
                number += 1
                values = {"id": str(number), "v": rng.choice(["", "ü" * 40])}
                transaction.insert(table, values)
        for transaction in rng.sample(group, len(group)):
            transaction.draw_csn()
        for transaction in rng.sample(group, len(group)):
            transaction.commit()


@pytest.fixture
def gauss(make_gauss: MakeGauss) -> GaussServer:
    """A simulated server with a table and a slot."""
    gauss = make_gauss(V6_0_0)
    GaussDatabase(gauss)
    gauss.store.create_table("public", "orders", COLUMNS, key=["id"])
    return gauss


def table_of(gauss: GaussServer) -> Table:
    return gauss.store.tables["public", "orders"]


def record(gauss: GaussServer, run: Run, file: Path) -> Path:
    """Record all that the slot gives."""
    daemon = lands(
        GaussDatabase(gauss), file.parent, parallel_decode_num=2, decode_style="b", sending_batch=1
    )
    done = run("capture", str(daemon.config_path), str(file), "--seconds", "60")
    assert done.status == EX_OK, done.err
    return file


def places(root: Path, table: str) -> list[list[Place]]:
    """Of each file of a table, its rows' places as they stand in it."""
    names = ["gd_csn", "gd_lsn", "gd_seq"]
    return [
        list(zip(*pq.read_table(root / file["path"], columns=names).to_pydict().values(), strict=True))
        for entry in landing.read_entries(root)
        for file in entry["files"]
        if file["table"] == table
    ]  # fmt: skip


def entries(root: Path) -> list[dict[str, Any]]:  # Any: JSON
    return list(landing.read_entries(root))


def current(root: Path, path: Path) -> dict[str, list[str]]:
    """The rows of each table that its changes come to, without where they stand in the log."""
    tables = sorted(set(Landing(root).tables().values()) - NO_IDENTITY)
    options = Options(tables=tables, accept_hidden_truncates=True)
    apply_with(LocalEngine(), root, path, options)
    target = Target(path)
    database = target.database()
    assert database is not None
    found = {}
    for name, number in database.tables.items():
        version = target.version(name, number)
        rows = [
            {key: value for key, value in row.items() if key != "gd_n"}
            for file in version.current
            for row in current_rows(target.table_root(name), file).to_pylist()
        ]
        found[name] = sorted(map(repr, rows))  # a NaN is not equal to itself
    return found


def replay(run: Run, file: Path, root: Path, *more: str) -> int:
    done = run("replay", str(file), "--root", str(root), *more)
    assert done.status != EX_OK or not done.err.count("Traceback")
    return done.status


@pytest.mark.parametrize("decoders", ["1", "3"])
@pytest.mark.parametrize("seed", [1, 2])
def test_recording_lands_by_csn(
    gauss: GaussServer, run: Run, tmp_path: Path, seed: int, decoders: str
) -> None:
    """Every change once, in files that are in the order of CSNs, as one entry; again adds nothing."""
    commit_at_random(gauss, table_of(gauss), Random(seed), 40)
    committed = [of for of in gauss.store.committed if of.changes]
    csns = [of.csn for of in committed]
    assert csns != sorted(csns), "no inversion: the test tells nothing"
    file = record(gauss, run, tmp_path / "recording")
    root, by_lsn = tmp_path / "by_csn", tmp_path / "by_lsn"
    order = ("--output-order", "1")
    assert replay(run, file, root, "--decoders", decoders, *order) == EX_OK
    assert replay(run, file, by_lsn) == EX_OK
    files = places(root, "public.orders")
    assert all(rows == sorted(rows) for rows in files)
    found = sorted(row for rows in files for row in rows)
    assert found == sorted(row for rows in places(by_lsn, "public.orders") for row in rows)
    assert list(dict.fromkeys(csn for csn, _, _ in found)) == sorted(csns)
    assert json.loads((root / "layout.json").read_text())["order"] == "csn"
    log = entries(root)
    assert [entry["kind"] for entry in log if entry["files"]] == ["data"]
    (position,) = log[-1]["positions"].values()
    assert position["csn"] == max(of.csn for of in gauss.store.committed)
    assert run("verify", str(root)).status == EX_OK
    assert replay(run, file, root, *order) == EX_OK
    assert entries(root) == log
    assert replay(run, file, root) == EX_CONFIG  # the landing is in another order


def test_lower_csn_in_the_next_recording_is_refused(
    gauss: GaussServer, run: Run, tmp_path: Path
) -> None:
    """Its turn was before what has landed; nothing of that recording lands."""
    root, order = tmp_path / "by_csn", ("--output-order", "1")
    table = table_of(gauss)
    late = gauss.store.begin()
    late.insert(table, {"id": "1", "v": "late"})
    late.draw_csn()
    commit_at_random(gauss, table, Random(3), 3)
    first = record(gauss, run, tmp_path / "first")
    assert replay(run, first, root, *order) == EX_OK
    log = entries(root)
    commit_at_random(gauss, table, Random(4), 3)
    late.commit()
    second = record(gauss, run, tmp_path / "second")
    done = run("replay", str(second), "--root", str(root), *order)
    assert done.status == EX_PROTOCOL, done.err
    assert "came after all up to CSN" in done.err
    assert entries(root) == log


@pytest.mark.parametrize(
    "name",
    [
        "5.0.0/b-batched",
        "5.0.0/j-unbatched",
        "5.0.0/serial-mppdb",
        "5.0.0/gaussdecode-cap",
        "6.0.2/t-batched",
    ],
)
def test_real_streams_land_by_csn(name: str, run: Run, tmp_path: Path) -> None:
    """What a real server sent lands whole, and is what lands by LSN."""
    file = realstream.write_capture(name, tmp_path)
    assert replay(run, file, tmp_path / "lsn") == EX_OK
    assert replay(run, file, tmp_path / "csn", "--output-order", "1") == EX_OK
    assert run("verify", str(tmp_path / "csn")).status == EX_OK
    tables = {file["table"] for entry in entries(tmp_path / "lsn") for file in entry["files"]}
    tables.discard(TRANSACTIONS)
    assert len(tables) > 5
    for table in tables:
        files = places(tmp_path / "csn", table)
        assert all(rows == sorted(rows) for rows in files)
        by_lsn = itertools.chain.from_iterable(places(tmp_path / "lsn", table))
        assert sorted(itertools.chain.from_iterable(files)) == sorted(by_lsn)
    by_order = [current(tmp_path / order, tmp_path / f"lake-{order}") for order in ("lsn", "csn")]
    assert len(by_order[0]) > 5
    assert by_order[0] == by_order[1]
