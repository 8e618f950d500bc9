"""A configuration for a real database, and a way to run a command on it."""

from pathlib import Path

import pytest
from kit.commands import Configure, Result, Run
from kit.postgres import Database

from gaussdecode.cli import main


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    """Write a configuration for a database; more lines are appended."""

    def write(database: Database, *lines: str, landing: str = "landing") -> str:
        path = tmp_path / "orders.yaml"
        text = [
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
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process."""

    def call(*arguments: str) -> Result:
        capsys.readouterr()
        status = main(arguments)
        return Result(status, *capsys.readouterr())

    return call
