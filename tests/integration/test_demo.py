"""The demo, as a newcomer runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.spark]
_SCRIPTS = Path(sys.executable).parent
_COMMAND = (sys.executable, "-m", "gaussdecode", "demo", "--seconds", "3", "--rows", "2000")


def _demo(directory: Path, *options: str) -> str:
    result = subprocess.run(
        [*_COMMAND, *options], cwd=directory, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    return result.stdout


def _paste(line: str, directory: Path) -> str:
    """Give a printed command to a shell that knows nothing of the environment."""
    path = os.pathsep.join(
        each for each in os.environ["PATH"].split(os.pathsep) if each != str(_SCRIPTS)
    )
    done = subprocess.run(
        ["bash", "-c", line], cwd=directory, env={**os.environ, "PATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.timeout(400)
def test_demo(tmp_path: Path) -> None:
    """It ends with status 0, every table equal, and leaves its landing."""
    output = _demo(tmp_path, "--decoders", "2")
    assert "every table of the database equals the replay of what landed" in output
    assert "DIFFERENT" not in output
    assert (tmp_path / "demo-landing" / "layout.json").exists()
    _, _, told = output.partition("==> Next\n")
    lines = told.splitlines()
    assert len(lines) == 5
    said = "".join(_paste(line, tmp_path) for line in lines)
    assert "entries    " in said, "verify counts them"
    assert "customer" in said


@pytest.mark.timeout(400)
def test_demo_again(tmp_path: Path) -> None:
    """Run again, without Spark and on another server, it replaces its landing."""
    for major in ("16", "18"):
        output = _demo(tmp_path, "--decoders", "1", "--no-spark", "--postgres", major)
        assert f"server {major} of our own" in output
        assert "Spark replays" not in output


def test_demo_keeps_what_is_not_its_own(tmp_path: Path) -> None:
    """A directory that is no landing of a demo is left alone."""
    precious = tmp_path / "demo-landing" / "precious"
    precious.parent.mkdir()
    precious.write_text("mine")
    result = subprocess.run(
        [*_COMMAND, "--no-spark"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 78
    assert "--root" in result.stderr
    assert precious.read_text() == "mine"
