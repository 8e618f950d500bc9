"""What a reload takes of a file that has changed, key by key."""

import dataclasses
from pathlib import Path

import pytest

from gaussdecode.errors import ConfigError
from gaussdecode.settings.load import SECTIONS, load
from gaussdecode.settings.reload import compare
from gaussdecode.settings.sections import Config

_FILE = """
slot: orders
source: {kind: postgresql, dsn: host=/run dbname=d user=u, publication: [p]}
landing: {root: /landing}
"""
_SEVERAL = """
sources:
  a: {dsn: host=/run dbname=a user=u, slot: sa}
  b: {dsn: host=/run dbname=b user=u, slot: sb}
source: {kind: postgresql, publication: [p]}
landing: {root: /landing}
"""


def _load(directory: Path, text: str) -> Config:
    path = directory / "orders.yaml"
    path.write_text(text)
    path.chmod(0o600)
    return load(path)


def test_keys_are_taken_or_named(tmp_path: Path) -> None:
    """What can change is in the result; what cannot keeps its value, and is named."""
    running = _load(tmp_path, _FILE)
    text = _FILE.replace("root: /landing", "root: /other, compact: true, mirror: {url: 's3://b'}")
    read = _load(tmp_path, text + "decoding: {white-table-list: s.t}\nguard: {interval: 1s}\n")
    config, taken, refused = compare(running, read)
    assert taken == (
        "decoding.white-table-list", "guard.interval", "landing.compact", "landing.mirror.url",
    )  # fmt: skip
    assert refused == ("landing.root",)
    assert config == dataclasses.replace(read, landing=config.landing)
    assert config.landing == dataclasses.replace(read.landing, root=Path("/landing"))
    assert compare(config, read).taken == ()


def test_each_source_has_its_keys(tmp_path: Path) -> None:
    """Of several sources, a key of one is named with it, and only that one changes."""
    running = _load(tmp_path, _SEVERAL)
    text = _SEVERAL.replace("dbname=b", "dbname=c").replace("slot: sa", "slot: other")
    config, taken, refused = compare(running, _load(tmp_path, text.replace("root: /l", "root: /m")))
    assert (taken, refused) == (("sources.b.dsn",), ("landing.root", "sources.a.slot"))
    assert config.members["a"] == running.members["a"]
    assert "dbname=c" in config.members["b"].source.dsn
    assert {of.landing.root for of in config.members.values()} == {Path("/landing")}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (_FILE.replace("slot: orders", "slot: other"), "slot"),
        (_SEVERAL, "sources"),
        (
            "slot: orders\nsource: {kind: capture, file: /c}\nlanding: {root: /landing}\n",
            "source.kind",
        ),
    ],
)
def test_another_source_is_refused(tmp_path: Path, text: str, key: str) -> None:
    """Nothing of such a file is taken."""
    running = _load(tmp_path, _FILE)
    with pytest.raises(ConfigError, match=f"{key}: cannot change without a restart"):
        compare(running, _load(tmp_path, text))


def test_keys_for_a_start_are_few() -> None:
    """All others are taken by a reload."""
    fixed = {
        f"{name}.{field.name}"
        for name, cls in SECTIONS.items()
        for field in dataclasses.fields(cls)
        if field.metadata["setting"].is_for_start
    }
    assert fixed == {
        "landing.root", "landing.replicated_tables", "source.file", "source.kind",
    }  # fmt: skip
