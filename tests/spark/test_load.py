"""Existing rows on their way into a target: what is refused, and when tables show."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG
from gaussdecode.settings.load import load
from gaussdecode.snapshot.catchup import Again
from gaussdecode.snapshot.ranges import shared
from gaussdecode.snapshot.staging import Cut
from gaussdecode.spark.merge.commit import ahead
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.merge.plan import Applied, Plan

_SOURCES = {
    "gaussdb": "{kind: gaussdb, dsn: host=127.0.0.1 dbname=d user=u sslmode=disable, allow-insecure: true}\n"
    "decoding: {parallel-decode-num: 2, skip-empty-xacts: true}",
    "capture": "{kind: capture, file: /some.cap}",
}


@pytest.mark.parametrize(("reached", "expected"), [(59, "public.b"), (60, None), (61, None)])
def test_tables_show_when_the_plan_is_beyond_their_rows(reached: int, expected: str | None) -> None:
    """Rows that were read later than the plan's position would be newer than the other tables."""
    applied = {
        "public.a": Applied(3),
        "public.b": Applied(3, ignore_through=(1, 60)),
        "public.c": Applied(3, ignore_through=(0, 900)),
    }
    assert ahead(Plan(5, position=(1, reached, None)), applied) == expected


@pytest.mark.parametrize(("kind", "why"), [("gaussdb", "snapshot.nudge"), ("capture", "recording")])
def test_other_sources_are_refused(
    kind: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one sentence, and nothing is made."""
    config = tmp_path / "slot.yaml"
    config.write_text(f"slot: s\nsource: {_SOURCES[kind]}\nlanding: {{root: {tmp_path}/landing}}\n")
    config.chmod(0o600)
    target = tmp_path / "target"
    assert main(["spark", "snapshot", str(config), str(target), "--local"]) == EX_CONFIG
    assert why in capsys.readouterr().err
    assert not target.exists()


@pytest.mark.parametrize(("rate", "connections", "each"), [(None, 3, None), (10, 3, 3), (2, 3, 1)])
def test_connections_share_the_rate(
    rate: int | None, connections: int, each: int | None, tmp_path: Path
) -> None:
    """All together keep it, but for a byte of each where it is absurdly low."""
    path = tmp_path / "slot.yaml"
    path.write_text(
        f"slot: s\nsource: {_SOURCES['gaussdb']}\nlanding: {{root: {tmp_path}/landing}}\n"
    )
    config = shared(load(path), rate, connections)
    assert (config.snapshot.rate_limit, config.snapshot.workers) == (each, 1)


class Tasks(LocalEngine):
    """Remembers what it ran."""

    def each(self, tasks: Sequence[Any], run: Callable[[Any], Iterator[str]]) -> list[str]:
        """See `Engine`."""
        self.tasks = list(tasks)
        return []


@pytest.mark.parametrize(("connections", "tasks"), [(2, [3, 2]), (9, [1] * 5)])
def test_rows_are_read_again_by_no_more_connections(
    connections: int, tasks: list[int], tmp_path: Path
) -> None:
    """Files of keys are dealt out to them, each once."""
    keys = tuple(tmp_path / f"keys-{number}" for number in range(5))
    engine, cut = Tasks(), Cut("t", "public.a", "", "1", (1,), 1, 1, {})
    reading = SimpleNamespace(view=SimpleNamespace(lsn=9), root=tmp_path)
    task = SimpleNamespace(landed=SimpleNamespace(directory="public.a"))
    again = Again(engine, tmp_path, reading, task, cut, 1.0, connections)  # type: ignore[arg-type]  # no server
    again._finished({}, keys)
    assert [len(of.keys) for of in engine.tasks] == tasks
    assert sorted(path for of in engine.tasks for path in of.keys) == sorted(keys)
