"""What the set-up says while it works, on a terminal and in a log."""

import os
import pty
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = """
set -euo pipefail
. "$ROOT/.ci/steps"
step_count=3
until_told() { echo working; while ! [ -e "$LOG.told" ]; do sleep 0.05; done; }
how_far() { echo "$(cat "$LOG") hard"; touch "$LOG.told"; }
fails() { echo begun; ls "$LOG.missing"; echo not reached; }
step "quick" how_far true
step "slow (a moment)" how_far until_told
step "broken" how_far fails
"""


def environment(directory: Path) -> dict[str, str]:
    """Has the script tell soon what it does."""
    log = str(directory / "log")
    told = {"ROOT": str(ROOT), "LOG": log, "step_log": log, "step_interval": "0.2"}
    return {**os.environ, **told, "step_quiet": "1"}


def in_a_log(directory: Path) -> tuple[int, str]:
    """Run it without a terminal."""
    done = subprocess.run(
        ["bash", "-c", SCRIPT], env=environment(directory), check=False, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout


def on_a_terminal(directory: Path) -> tuple[int, str]:
    """Run it with one."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        ["bash", "-c", SCRIPT], env=environment(directory), stdin=its, stdout=its, stderr=its
    )
    os.close(its)
    said = b""
    try:
        while part := os.read(ours, 4096):
            said += part
    except OSError:  # the last that had it open is gone
        os.close(ours)
    return process.wait(60), said.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("run", [in_a_log, on_a_terminal], ids=["log", "terminal"])
def test_steps_say_how_far_they_are(tmp_path: Path, run: object) -> None:
    """Line by line; a step that fails shows the end of its output and where the rest is."""
    assert callable(run)
    status, said = run(tmp_path)
    assert status == 1
    lines = said.splitlines()
    assert "quick" not in said, "what is done at once is not told"
    assert lines[0] == "setup: [2/3] slow (a moment)"
    assert lines[1].startswith("setup:     ")
    assert lines[1].endswith(" s: working hard")
    (done,) = (number for number, line in enumerate(lines) if "    done in " in line)
    assert lines[done + 1 : done + 3] == ["setup: [3/3] broken", "begun"]
    assert "log.missing" in lines[done + 3]
    assert lines[-1].endswith(f"its whole output is in {tmp_path / 'log'}")
    assert "not reached" not in said
    assert "\x1b" not in said


def test_purposes_are_named() -> None:
    """A wrong one changes nothing."""
    done = subprocess.run(
        [ROOT / ".ci" / "setup", "tset"], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (2, "usage: .ci/setup [dev|test]\n")
