"""Landings of streams that show no TRUNCATE."""

import json
from pathlib import Path
from typing import cast

import pytest

from gaussdecode.errors import ConfigError
from gaussdecode.spark.apply import apply_with
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.merge.engine import Engine

LAYOUT = {
    "version": 1, "landing_id": "0" * 32, "created": "2026-01-31T00:00:00.000000Z",
    "order": "lsn", "sources": {"s": {}},
    "capabilities": ["checkpoints", "compact", "retention", "hides-truncate"],
}  # fmt: skip


def test_apply_stops_unless_the_operator_chose_otherwise(tmp_path: Path) -> None:
    """Nothing is made of such a landing, and the text says what can be done."""
    (tmp_path / "layout.json").write_text(json.dumps(LAYOUT))
    assert Landing(tmp_path).hides_truncate
    engine = cast("Engine", None)  # it is not asked
    with pytest.raises(ConfigError, match="--accept-hidden-truncates"):
        apply_with(engine, tmp_path, tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_landing_whose_files_have_gone_to_the_mirror(tmp_path: Path) -> None:
    """Nobody reads a part of a landing as if it were all; the text says where the rest is."""
    record = {**LAYOUT, "capabilities": ["checkpoints", "mirrored"]}
    (tmp_path / "layout.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError, match="the others are in its mirror alone"):
        Landing(tmp_path)
