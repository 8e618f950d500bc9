"""Rows that were read for a target go with the landing whose entries their views stand at."""

from pathlib import Path

import pytest
from kit.history import LandingWriter

from gaussdecode.snapshot.staging import Cut, Staging, Standing

TABLE = "public.t"
CUT = Cut("ab", TABLE, "f", "s", (1,), 1, 1, {7: Standing(41, 0)})


@pytest.mark.parametrize("landing", ["same", "other"])
def test_what_was_read_for_another_landing_goes(landing: str, tmp_path: Path) -> None:
    """It is read again; what was read for this one is gone on with."""
    LandingWriter(tmp_path / "same")
    LandingWriter(tmp_path / "other")
    first = Staging.begin(tmp_path / "target", tmp_path / "same")
    first.keep(TABLE, CUT)
    read = tmp_path / "target" / "load" / "data" / TABLE / f"ab-{0:08d}-{7:016x}-3.parquet"
    read.write_bytes(b"x")
    again = Staging.begin(tmp_path / "target", tmp_path / landing)
    is_same = landing == "same"
    assert again.tables() == ([TABLE] if is_same else [])
    assert bool(again.ranges(TABLE, "ab")) == is_same
