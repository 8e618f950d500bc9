"""A CSN is a point of a log where it cuts it, and an error with the nearest ones elsewhere."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit.history import LandingWriter

from gaussdecode.cli import main
from gaussdecode.collect.arrow import TRANSACTIONS, system_schema
from gaussdecode.errors import EX_CONFIG, ConfigError
from gaussdecode.model.landing import EntryKind, LandingFile, Position
from gaussdecode.spark.log.landing import Landing, Point

UNORDERED: tuple[list[int], ...] = ([2350], [2340], [2360, 2358], [2355], [], [2370])


def file_of(writer: LandingWriter, csns: list[int]) -> LandingFile:
    """The rows of transactions, as they land."""
    rows = [{"gd_csn": csn, "gd_lsn": 1, "gd_epoch": 0, "rows": 0} for csn in csns]
    table = pa.Table.from_pylist(rows, schema=system_schema(TRANSACTIONS))
    path = writer.root / f"data/{TRANSACTIONS}/gd_date=2026-01-31/{writer.n:020d}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    named, place = str(path.relative_to(writer.root)), Position(1, 0)
    return LandingFile(
        TRANSACTIONS,
        named,
        len(rows),
        path.stat().st_size,
        place,
        place,
        "x",
        {},
        False,
        False,
        f"sha256:{'0' * 64}",
    )


def land(root: Path, entries: tuple[list[int], ...]) -> LandingWriter:
    """An entry for each, after the first of the log; one without CSNs is idle."""
    writer = LandingWriter(root)
    last = 2300
    for lsn, csns in enumerate(entries, 100):
        last = csns[-1] if csns else last
        if not csns:
            writer.entry(EntryKind.IDLE, lsn, csn=last)
            continue
        extra = {"csns": {"least": min(csns), "greatest": max(csns)}}
        writer.entry(EntryKind.DATA, lsn, [file_of(writer, csns)], extra=extra, csn=last)
    return writer


def test_only_a_cut_is_a_point(tmp_path: Path) -> None:
    """Where an entry ends inside of what other CSNs reach over, it is no point."""
    land(tmp_path / "landing", UNORDERED)
    landing = Landing(tmp_path / "landing")
    exact = {
        csn: landing.resolve(Point(csn=csn))
        for csn in (1, 2339, 2350, 2354, 2360, 2369, 2370, 9999)
    }
    assert exact == {1: 0, 2339: 0, 2350: 2, 2354: 2, 2360: 5, 2369: 5, 2370: 6, 9999: 6}
    with pytest.raises(ConfigError, match=r"CSN 2340 is no point.*some above; entry 2 has all up"):
        landing.resolve(Point(csn=2340))
    with pytest.raises(
        ConfigError,
        match=r"entry 2 has none above, and not all .* CSNs 2340 to 2350; entry 4 has all up to it, "
        r"and some above: up to there are CSNs 2340 to 2360.*--n",
    ):
        landing.resolve(Point(csn=2355))


def test_a_snapshot_that_is_ahead_has_what_lands_after_it(tmp_path: Path) -> None:
    """Between it and its position the log is cut by no CSN of those that it has."""
    writer = land(tmp_path / "landing", ([5],))
    writer.entry(EntryKind.SNAPSHOT, 100, extra={"snapshot": {"epoch": 0, "lsn": 110}}, csn=5)
    for lsn, csn in ((105, 6), (110, 7), (120, 8)):
        extra = {"csns": {"least": csn, "greatest": csn}}
        writer.entry(EntryKind.DATA, lsn, extra=extra, csn=csn)
    landing = Landing(writer.root)
    assert [landing.resolve(Point(csn=csn)) for csn in (5, 7, 8)] == [1, 4, 5]
    with pytest.raises(ConfigError, match="no point"):
        landing.resolve(Point(csn=6))


def test_a_landing_without_csns(tmp_path: Path) -> None:
    """PostgreSQL has none."""
    writer = LandingWriter(tmp_path / "landing")
    writer.entry(EntryKind.DATA, 100)
    with pytest.raises(ConfigError, match="have no CSN; ask by LSN"):
        Landing(writer.root).resolve(Point(csn=5))


def test_apply_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, and applies nothing."""
    land(tmp_path / "landing", UNORDERED)
    places = [str(tmp_path / "landing"), str(tmp_path / "target")]
    assert main(["spark", "apply", *places, "--local", "--to-csn", "2355"]) == EX_CONFIG
    assert "CSN 2355 is no point of this log" in capsys.readouterr().err
