"""`gaussdecode check` sees a configuration as its unit will: account, credentials, hidden and read-only paths."""

import json
import os
import pwd
from pathlib import Path

import pytest

from gaussdecode.operations.check.unit import unit_problems
from gaussdecode.operations.unit import find_unit
from gaussdecode.settings.load import load
from gaussdecode.settings.sections import Config

_SYSTEMCTL = """#!/bin/sh
cat <<END
LoadState=loaded
User={user}
ExecStart={{ path=/opt/x ; argv[]=/opt/x run {runs} ; ignore_errors=no }}
ProtectHome={home}
ProtectSystem=strict
PrivateTmp=no
StateDirectory=gaussdecode/orders
ReadWritePaths=-{writable}
END
"""
_BUSCTL = """#!/bin/sh
case "$*" in
*/unit/gaussdecode_40orders_2eservice*) printf '%s\\n' '{credentials}';;
esac
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory that everybody may enter."""
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.geteuid() and not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o055)
    return tmp_path


def _write(place: Path, source: str = "") -> Config:
    path = place / "orders.yaml"
    path.write_text(
        "slot: orders\nsource: {kind: postgresql, dsn: host=db dbname=shop user=gd "
        f"sslrootcert={place}/ca.pem, publication: [p]{source}}}\n"
        f"landing: {{root: {place}/landing}}\n"
    )
    path.chmod(0o644)
    for name in ("ca.pem", "orders.password"):
        (place / name).write_text("x")
        (place / name).chmod(0o644)
    return load(path)


def _problems(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
    credential: Path | None = None,
    **changes: object,
) -> list[str]:
    """The problems of a unit that runs as nobody."""
    place = config.path.parent
    facts = {
        "user": "nobody",
        "runs": config.path,
        "home": "no",
        "writable": place,
    }
    listed = {"password": str(credential or place / "orders.password"), "other": "relative"}
    if "credentials" not in changes:
        changes["credentials"] = json.dumps({"type": "a(ss)", "data": list(listed.items())})
    programs = place / "bin"
    programs.mkdir(exist_ok=True)
    for name, text in (("systemctl", _SYSTEMCTL), ("busctl", _BUSCTL)):
        (programs / name).write_text(text.format(**{**facts, **changes}))
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/bin:/usr/bin")
    return unit_problems(config, find_unit(config.path))


def test_nothing_is_found_where_the_unit_may_all(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also without a unit, and with one that runs another file."""
    config = _write(place)
    assert _problems(config, monkeypatch) == []
    none = place / "none"
    assert _problems(config, monkeypatch, none, runs="/etc/other.yaml") == []
    assert _problems(config, monkeypatch, none, user="nobody-of-that-name") == []
    assert unit_problems(config, None) == []


@pytest.mark.parametrize("name", ["orders.yaml", "ca.pem"])
def test_a_file_that_the_account_may_not_read(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is named with its owner and mode; `run` would end with status 78."""
    config = _write(place)
    (place / name).chmod(0o600)
    (problem,) = _problems(config, monkeypatch)
    assert f"{place / name} may not be read by user nobody" in problem
    assert "mode 0600" in problem
    (place / name).chmod(0o640)
    assert _problems(config, monkeypatch)
    if os.geteuid() == 0:
        os.chown(place / name, -1, pwd.getpwnam("nobody").pw_gid)
    assert bool(_problems(config, monkeypatch)) == (os.geteuid() != 0)


def test_files_of_the_ports_tls_are_looked_at(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them that the account may not read."""
    config = _write(place)
    with config.path.open("a") as file:
        names = ("certificate", "key", "client-ca")
        files = ", ".join(f"tls-{name}-file: {place}/{name}.pem" for name in names)
        file.write(f"monitoring: {{{files}}}\n")
    for name in names:
        (place / f"{name}.pem").write_text("x")
        (place / f"{name}.pem").chmod(0o600)
    problems = _problems(load(config.path), monkeypatch)
    assert [problem.split(": ")[1] for problem in problems] == [
        f"monitoring.tls-{name}-file" for name in names
    ]
    assert all("may not be read by user nobody" in problem for problem in problems)


def test_a_closed_directory_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file itself would be readable."""
    inside = place / "closed"
    inside.mkdir(mode=0o755)
    config = _write(inside)
    inside.chmod(0o700)
    problems = _problems(config, monkeypatch)
    assert any(
        f"{inside} belongs to" in problem and "orders.yaml" in problem for problem in problems
    )


def test_a_missing_credential_is_found(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit would be started again and again."""
    config = _write(place)
    (problem,) = _problems(config, monkeypatch, credential=place / "none")
    assert "243/CREDENTIALS" in problem
    assert str(place / "none") in problem


def test_a_password_file_is_needed_where_no_credential_is(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the credential nobody but systemd reads it."""
    config = _write(place, f", password-file: {place}/orders.password")
    (place / "orders.password").chmod(0o600)
    assert _problems(config, monkeypatch) == []
    assert _problems(config, monkeypatch, credentials="") == []  # it is not known
    (problem,) = _problems(config, monkeypatch, credentials='{"type": "a(ss)", "data": []}')
    assert "source.password-file" in problem


def test_a_landing_that_the_unit_cannot_write(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is read-only for it but its own directory and ReadWritePaths."""
    config = _write(place)
    (problem,) = _problems(config, monkeypatch, writable="/srv/other")
    assert f"ReadWritePaths={place}/landing" in problem


def test_what_the_unit_hides_is_found(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file below /root is not there for it."""
    config = _write(place, ", password-file: /root/orders.password")
    problems = _problems(config, monkeypatch, home="yes")
    assert problems == []  # the credential takes precedence
    path = config.path
    path.write_text(path.read_text().replace(f"{place}/ca.pem", "/root/ca.pem"))
    (problem,) = _problems(load(path), monkeypatch, home="yes")
    assert "sslrootcert: /root/ca.pem is hidden from the unit, as all of /root" in problem
