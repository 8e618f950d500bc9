"""`gaussdecode check` judges the section `serve` as its server will."""

import os
import pwd
import socket
from pathlib import Path

import pytest
from kit.certificates import sign
from kit.postgres import make_certificates
from kit.served import Served, unpack_landing

from gaussdecode.errors import ConfigError
from gaussdecode.operations.check.serve import examine_serve
from gaussdecode.operations.check.unit import serve_unit_problems, unit_problems
from gaussdecode.operations.unit import Unit
from gaussdecode.serve.users import write_user
from gaussdecode.settings.load import load
from gaussdecode.settings.sections import Config


def _write(place: Path, *lines: str, root: Path | None = None) -> Config:
    path = place / "orders.yaml"
    serve = "".join(f"  {line}\n" for line in ("listen: 127.0.0.1:0", *lines))
    path.write_text(
        "slot: orders\nsource: {kind: postgresql, dsn: host=db dbname=shop user=gd, publication: [p]}\n"
        f"landing: {{root: {root or place / 'landing'}}}\nserve:\n{serve}"
    )
    return load(path)


def test_users(tmp_path: Path) -> None:
    """Missing, open to others, damaged, and without anybody."""
    users = tmp_path / "users"
    config = _write(tmp_path, f"users-file: {users}")
    (problem,) = examine_serve(config).problems
    assert problem == f"serve.users-file: {users}: No such file or directory"
    write_user(users, "reader", "secret")
    assert (examine_serve(config).problems, examine_serve(config).findings) == ([], [])
    users.chmod(0o640)
    assert "chmod 0600" in examine_serve(config).problems[0]
    users.write_text("[a]")
    users.chmod(0o600)
    assert "allowed: a name" in examine_serve(config).problems[0]
    users.write_text("")
    assert examine_serve(config).problems == []
    (finding,) = examine_serve(config).findings
    assert finding.remedy == f"gaussdecode serve passwd {users} NAME"


def test_certificates(tmp_path: Path) -> None:
    """A missing or bad file is a problem; one that ends soon, and a remote port without TLS, are found."""
    make_certificates(tmp_path)
    users = tmp_path / "users"
    write_user(users, "reader", "secret")
    certificate, key = tmp_path / "soon.pem", tmp_path / "soon.key"
    lines = (f"tls-certificate-file: {certificate}", f"tls-key-file: {key}")
    config = _write(tmp_path, *lines)
    assert examine_serve(config).problems == [
        f"serve.tls-certificate-file: {certificate}: No such file or directory"
    ]
    sign(tmp_path, "soon", end_days=3)
    found = examine_serve(config)
    assert found.problems == []
    assert "serve.tls-certificate-file ends in" in found.findings[0].what
    key.write_text("x")
    assert "serve.tls-key-file" in examine_serve(config).problems[0]
    remote = _write(tmp_path, f"users-file: {users}")
    path = tmp_path / "orders.yaml"
    path.write_text(path.read_text().replace("127.0.0.1:0", "0.0.0.0:0"))
    remote = load(path)
    (finding,) = examine_serve(remote).findings
    assert "without TLS" in finding.what


def test_ports(tmp_path: Path) -> None:
    """Taken by another program, or by the server of this very landing; or no address of this machine."""
    root = unpack_landing(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = _write(tmp_path, f"monitoring-listen: 127.0.0.1:{port}", root=root)
        (problem,) = examine_serve(config).problems
        assert problem.startswith(f"serve.monitoring-listen: 127.0.0.1:{port} is taken by another")
        with Served(root):
            found = examine_serve(config)
        assert (found.text, found.problems) == ("running", [])
    config = _write(tmp_path, root=root)
    assert examine_serve(config).problems == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("monitoring-listen: 127.0.0.1:19187", "is monitoring.listen, the port of the daemon"),
        ("monitoring-listen: 0.0.0.0:19188", "allowed with monitoring.allow-remote: true"),
        ("monitoring-listen: 19188", "is not an address"),
        ("allow: [10.0.0.1/8]", "is not a network"),
    ],
)
def test_what_is_refused_when_the_file_is_read(tmp_path: Path, line: str, reason: str) -> None:
    """With its key."""
    with pytest.raises(ConfigError, match=reason):
        _write(tmp_path, line)


def test_the_unit_sees_the_files(tmp_path: Path) -> None:
    """Those of `serve`, and of the monitoring port where it has one."""
    users = tmp_path / "home" / "users"
    config = _write(tmp_path, f"users-file: {users}")
    me = pwd.getpwuid(os.geteuid())
    unit = Unit("gaussdecode-serve@orders.service", me, frozenset(), None, (str(users.parent),), ())
    told = serve_unit_problems(config, unit)
    assert f"{unit.name}: serve.users-file: {users} is hidden from the unit" in told[0]
    assert "is read-only for the unit" in told[1]
    assert serve_unit_problems(config, None) == []


def test_a_server_in_the_daemon(tmp_path: Path) -> None:
    """Its files are read by the daemon's unit, its buffers count; the other unit is not used."""
    users = tmp_path / "home" / "users"
    beside = _write(tmp_path, f"users-file: {users}")
    config = _write(tmp_path, f"users-file: {users}", "in-daemon: true")
    me = pwd.getpwuid(os.geteuid())
    unit = Unit("gaussdecode@orders.service", me, frozenset(), None, (str(users.parent),), ())
    hidden = f"{unit.name}: serve.users-file: {users} is hidden from the unit"
    assert any(told.startswith(hidden) for told in unit_problems(config, unit))
    assert not any(told.startswith(hidden) for told in unit_problems(beside, unit))
    assert serve_unit_problems(config, unit) == []
    assert examine_serve(config).text == "not running, in the daemon"
    more = sum(config.memory_budget().values()) - sum(beside.memory_budget().values())
    assert more == config.serve.cache_bytes + 100 * config.serve.buffer_bytes
