"""Tests for `gaussdecode.commands.capture`, on a real server."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kit.commands import Configure, Run
from kit.postgres import Database

from gaussdecode.errors import EX_CONFIG, EX_OK
from gaussdecode.source.capture import Capture

pytestmark = pytest.mark.integration


@pytest.fixture
def prepared(database_15: Database) -> Database:
    """A table and a slot."""
    database_15.execute("CREATE TABLE t (x int)")
    database_15.create_slot()
    return database_15


def test_records_up_to_the_end(
    prepared: Database, configure: Configure, run: Run, tmp_path: Path
) -> None:
    """The file holds every commit that was there, and the slot stands still."""
    for number in range(3):
        prepared.execute(f"INSERT INTO t VALUES ({number})")
    before = prepared.slot_positions()
    file = tmp_path / "t.capture"
    result = run("capture", configure(prepared), str(file))
    assert result.status == EX_OK, result.err
    capture = Capture(file)
    frames = list(capture)
    assert f"{len(frames)} frames" in result.out
    assert sum(frame[:1] == b"w" and frame[25:26] == b"C" for frame in frames) == 3
    capture.close()
    assert prepared.slot_positions() == before


def test_an_existing_file_is_kept(
    prepared: Database, configure: Configure, run: Run, tmp_path: Path
) -> None:
    """Nothing is overwritten."""
    file = tmp_path / "t.capture"
    file.write_text("mine")
    assert run("capture", configure(prepared), str(file)).status == EX_CONFIG
    assert file.read_text() == "mine"


def test_a_signal_ends_it_in_order(
    prepared: Database, configure: Configure, tmp_path: Path
) -> None:
    """With --follow it goes on until SIGTERM, and the file is whole."""
    file = tmp_path / "t.capture"
    command = [sys.executable, "-m", "gaussdecode", "capture", "--follow", configure(prepared)]
    process = subprocess.Popen([*command, str(file)])
    while not file.exists():
        assert process.poll() is None
        time.sleep(0.02)
    prepared.execute("INSERT INTO t VALUES (1)")
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(60) == EX_OK
    Capture(file).close()
