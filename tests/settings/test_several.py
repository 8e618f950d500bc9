"""Tests for the several sources that a configuration may have."""

from pathlib import Path

import pytest

from gaussdecode.errors import AccessError, ConfigError
from gaussdecode.settings import sections
from gaussdecode.settings.load import load
from gaussdecode.settings.sections import Config

BASE = {
    "sources": """
  a: {dsn: host=/a dbname=d user=u, slot: s}
  b: {dsn: host=/b dbname=d user=u, slot: s, password-file: /b.password}""",
    "source": "{kind: postgresql, publication: [p], password-file: /shared.password}",
    "snapshot": "{mode: none}",
    "landing": "{root: /l}",
}
GAUSS = {
    "sources": """
  a: {dsn: host=/a dbname=d user=u, slot: S, slice-id: 0, ha-port: 7}
  b: {dsn: host=/b dbname=d user=u, slot: x.y-z, slice-id: 3}""",
    "source": "{kind: gaussdb}",
    "decoding": "{output-order: 1}",
}
ONE = "{a: {dsn: host=/a dbname=d user=u, slot: s}}"
TWICE = "{a: {dsn: host=/a dbname=d user=u, slot: s}, b: {dsn: host=/a dbname=d user=u, slot: s}}"
UNEVEN = (
    "{a: {dsn: host=/a dbname=d user=u, slot: s, slice-id: 0}, "
    "b: {dsn: host=/b dbname=d user=u, slot: s}}"
)
UNNAMED = ONE.replace("a:", "a.b:", 1)


def loaded(directory: Path, **keys: str) -> Config:
    """Load the base with other keys."""
    path = directory / "orders.yaml"
    text = "".join(f"{key}: {value}\n" for key, value in {**BASE, **keys}.items())
    path.write_text(text, encoding="utf-8")
    return load(path)


def test_each_member_has_what_is_its_own(tmp_path: Path) -> None:
    """A member has its own server, slot and password file, and shares the others."""
    config = loaded(tmp_path)
    a, b = config.members.values()
    assert config.is_several
    assert config.slot == "a,b"
    assert list(config.members) == ["a", "b"]
    assert (a.source.dsn, a.slot) == ("host=/a dbname=d user=u", "s")
    assert b.source.dsn == "host=/b dbname=d user=u"
    assert a.source.password_file == Path("/shared.password")
    assert b.source.password_file == Path("/b.password")
    assert not a.is_several
    assert a.landing is config.landing


def test_members_of_gaussdb(tmp_path: Path) -> None:
    """Slots are read as the server does; each data node has its slice and port."""
    config = loaded(tmp_path, **GAUSS)
    a, b = config.members.values()
    assert config.lands_by_csn
    assert (a.slot, b.slot) == ("s", "x.y-z")
    assert (a.decoding.given["slice-id"], b.decoding.given["slice-id"]) == (0, 3)
    assert (a.source.ha_port, b.source.ha_port) == (7, None)


def test_passwords_are_kept_by_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read before rights are given up is each member's own; as long as it can, it is read again."""
    for name in "ab":
        (tmp_path / name).write_text(f"of {name}")
        (tmp_path / name).chmod(0o600)
    sources = (
        f"{{a: {{dsn: host=/a dbname=d user=u, slot: s, password-file: {tmp_path}/a}}, "
        f"b: {{dsn: host=/b dbname=d user=u, slot: s, password-file: {tmp_path}/b}}}}"
    )
    config = loaded(tmp_path, sources=sources).with_password_read()
    (tmp_path / "a").write_text("new")
    assert [member.password() for member in config.members.values()] == ["new", "of b"]

    def refuse(*_: object) -> str:
        raise AccessError("not for you")

    monkeypatch.setattr(sections, "read_password", refuse)
    assert [member.password() for member in config.members.values()] == ["of a", "of b"]


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"sources": ONE}, "sources: names fewer than two"),
        ({"sources": TWICE}, "sources.b.slot: is the slot of a too"),
        ({"sources": UNNAMED}, "sources.a.b: allowed"),
        ({"sources": TWICE.replace("slot: s", "slot: x.y")}, "sources.a.slot: "),
        ({"slot": "s"}, "slot: belongs under each"),
        ({"source": "{kind: postgresql, publication: [p], dsn: host=/a}"}, "source.dsn: belongs"),
        ({"source": "{kind: postgresql, publication: [p], two-phase: true}"}, "source.two-phase"),
        ({"sources": UNEVEN}, "sources.a.slice-id: has a use with kind gaussdb only"),
        ({**GAUSS, "decoding": "{}"}, "decoding.output-order: 1 is needed"),
        ({**GAUSS, "sources": UNEVEN}, "sources: slice-id: each of them its own"),
        ({**GAUSS, "decoding": "{output-order: 1, slice-id: 1}"}, "decoding.slice-id: belongs"),
        ({"landing": "{root: /l, replicated-tables: a.b}"}, "landing.replicated-tables: has a use"),
        (
            {**GAUSS, "decoding": "{output-order: 1, logical-receiver-num: 2}"},
            "decoding.logical-receiver-num: has no use",
        ),
    ],
)
def test_refused(tmp_path: Path, keys: dict[str, str], text: str) -> None:
    """What several sources cannot have is refused with its key."""
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, **keys)
    assert text in str(refused.value)
