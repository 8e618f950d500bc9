"""A configuration for a real database, and a way to run a command on it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.commands import Configure, Result, Run
from kit.gaussprofile import V6_0_0, Profile
from kit.gaussserver import Behaviour, GaussServer
from kit.gausssql import Catalogue
from kit.gaussstore import Store
from kit.postgres import Database, Postgres

from gaussdecode.cli import main
from gaussdecode.demo.ports import free_port


def own_port(lines: tuple[str, ...]) -> list[str]:
    """A port for its monitoring: tests beside this one follow pages that use the default."""
    is_given = any(line.startswith("monitoring:") for line in lines)
    return [] if is_given else [f"monitoring: {{listen: '127.0.0.1:{free_port()}'}}"]


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    """Write a configuration for a database; more lines are appended."""

    def write(database: Database, *lines: str, landing: str = "landing") -> str:
        path = tmp_path / "orders.yaml"
        text = [
            *own_port(lines),
            f"slot: {database.slot}",
            "source:",
            "  kind: postgresql",
            f"  dsn: {database.dsn} sslmode=disable",
            f"  publication: [{database.publication}]",
            "  allow-insecure: true",
            "landing:",
            f"  root: {tmp_path / landing}",
            *lines,
        ]
        path.write_text("\n".join(text) + "\n")
        path.chmod(0o600)
        return str(path)

    return write


@pytest.fixture
def make_gauss(servers: Callable[[int], Postgres]) -> Iterator[Callable[..., GaussServer]]:
    """Make running simulated servers, with an openGauss catalogue; they end with the test."""
    made: list[GaussServer] = []

    def make(profile: Profile = V6_0_0, **how: object) -> GaussServer:
        behaviour = Behaviour(flush_seconds=0.05)
        for name, value in how.items():
            setattr(behaviour, name, value)
        server = GaussServer(
            Store(), profile, catalogue=Catalogue(servers(15)), behaviour=behaviour
        )
        made.append(server.start())
        return server

    yield make
    for server in made:
        server.crash()
        assert server.violations == []
        if server.catalogue is not None:
            server.catalogue.close()


@pytest.fixture
def configure_gauss(tmp_path: Path) -> Configure:
    """Write a configuration for a simulated GaussDB; more lines are appended.

    Without decoders it begins without existing rows.
    """

    def write(server: GaussServer, *lines: str, source: str = "", slot: str = "orders") -> str:
        says = any("snapshot" in line or "parallel-decode-num" in line for line in lines)
        lines = lines if says else (*lines, "snapshot: {mode: none}")
        path = tmp_path / "orders.yaml"
        password = tmp_path / "password"
        password.write_text("Gauss@123\n")
        password.chmod(0o600)
        text = [
            *own_port(lines),
            f"slot: {slot}",
            "source:",
            "  kind: gaussdb",
            f"  dsn: host=127.0.0.1 port={server.port} dbname=shop user=replica sslmode=disable",
            f"  ha-port: {server.ha_port}",
            f"  password-file: {password}",
            "  allow-insecure: true",
            *([f"  {source}"] if source else []),
            "landing:",
            f"  root: {tmp_path / 'landing'}",
            *lines,
        ]
        path.write_text("\n".join(text) + "\n")
        return str(path)

    return write


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process."""

    def call(*arguments: str) -> Result:
        capsys.readouterr()
        status = main(arguments)
        return Result(status, *capsys.readouterr())

    return call
