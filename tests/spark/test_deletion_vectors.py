"""Rows that are no longer current, and rows of many buckets in one file."""

import dataclasses
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from gaussdecode.errors import LandingError
from gaussdecode.spark.target.deletion_vectors import (
    current_rows,
    ended_rows,
    folded,
    is_current,
    spans,
    write_added,
    write_vectors,
)
from gaussdecode.spark.target.state_file import write_state


@pytest.mark.parametrize("seed", range(20))
def test_vectors_of_many_files(seed: int, tmp_path: Path) -> None:
    """Each file has the rows that its own vector does not name; any span of it too."""
    rng = Random(seed)
    files, vectors = {}, {}
    for number in range(rng.randint(1, 5)):
        count = rng.randint(1, 50)
        file = write_state(pa.table({"x": range(count)}), tmp_path, f"current/{number}", "s")
        ended_at = sorted(rng.sample(range(count), rng.randint(0, count)))
        files[file.path] = dataclasses.replace(file, deleted=len(ended_at))
        if ended_at:
            vectors[file.path] = np.array(ended_at)
    deletes = write_vectors(tmp_path, "current/token", vectors)[0] if vectors else {}
    for path, plain in files.items():
        gone = set(vectors[path].tolist()) if path in vectors else set()
        file = dataclasses.replace(plain, deletes=str(deletes.get(path, "")))
        left = [x for x in range(file.rows) if x not in gone]
        assert current_rows(tmp_path, file).column("x").to_pylist() == left
        ended = ended_rows(tmp_path, file)
        start = rng.randint(0, file.rows)
        stop = rng.randint(start, file.rows)
        expected = [x not in gone for x in range(start, stop)]
        assert is_current((start, stop), ended).tolist() == expected


def test_a_vector_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    """A file of vectors that is missing, or has fewer positions than were counted, is named."""
    plain = write_state(pa.table({"x": [1, 2, 3]}), tmp_path, "current/a", "s", 0)
    deletes, _ = write_vectors(tmp_path, "current/d", {plain.path: np.array([1])})
    file = dataclasses.replace(plain, deletes=str(deletes[plain.path]), deleted=1)
    with pytest.raises(LandingError, match=r"has 1 rows of .*, not 2; restore the target"):
        current_rows(tmp_path, dataclasses.replace(file, deleted=2))
    path = tmp_path / file.deletes_path
    content = path.read_bytes()
    for damaged in (content[:-1], content[:8] + b"?" + content[9:], b""):
        path.write_bytes(damaged)
        with pytest.raises(LandingError, match="restore the target"):
            current_rows(tmp_path, file)
    path.unlink()
    with pytest.raises(LandingError, match="restore the target"):
        current_rows(tmp_path, file)


def test_added_rows_by_bucket(tmp_path: Path) -> None:
    """The span of each bucket has its rows; a file without spans is named as damaged."""
    parts = {5: pa.table({"x": [1, 2]}), 0: pa.table({"x": [3]}), 9: pa.table({"x": [4, 5]})}
    file = write_added(tmp_path, "current/added", "s", parts)
    rows = current_rows(tmp_path, file)
    found = spans(tmp_path / file.path)
    assert {b: rows.slice(i, j - i).column("x").to_pylist() for b, (i, j) in found.items()} == {
        0: [3], 5: [1, 2], 9: [4, 5],
    }  # fmt: skip
    plain = write_state(rows.replace_schema_metadata(None), tmp_path, "current/plain", "s")
    with pytest.raises(LandingError, match="restore the target"):
        spans(tmp_path / plain.path)


@pytest.mark.parametrize("seed", range(20))
def test_folding_keeps_files_few_and_rows_seldom_written(seed: int) -> None:
    """Of any sizes: few files are left, and a byte is written as often as sizes can double."""
    rng = Random(seed)
    files: list[tuple[str, int]] = []
    total = written = 0
    for number in range(300):
        size = rng.randint(1, 20)
        chosen = set(folded(files, size, 10_000))
        assert [path for path, _ in files][len(files) - len(chosen) :] == [
            path for path, _ in files if path in chosen
        ]
        whole = size + sum(held for path, held in files if path in chosen)
        files = [pair for pair in files if pair[0] not in chosen] + [(str(number), whole)]
        total, written = total + size, written + whole
        assert whole <= 10_000
        assert len(files) <= total.bit_length()
    assert written <= total * total.bit_length()
