"""Existing rows on their way into a target: what is refused, and when tables show."""

from pathlib import Path

import pytest

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG
from gaussdecode.spark.plan import Applied, Plan
from gaussdecode.spark.run import ahead

_SOURCES = {
    "gaussdb": "{kind: gaussdb, dsn: host=127.0.0.1 dbname=d user=u sslmode=disable, allow-insecure: true}",
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


@pytest.mark.parametrize(
    ("kind", "why"), [("gaussdb", "PostgreSQL only"), ("capture", "recording")]
)
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


def test_a_url_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """No directory is made that is called like one."""
    with pytest.raises(SystemExit):
        main(["spark", "snapshot", "slot.yaml", "s3://bucket/target"])
    assert "no URL" in capsys.readouterr().err
