"""What the set-up says while it works, on a terminal and in a log."""

import os
import pty
import subprocess
import termios
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = """
set -euo pipefail
. "$ROOT/.ci/steps"
step_count=3
until_told() { echo working; while ! [ -e "$LOG.told" ]; do sleep 0.05; done; }
how_far() { echo "$(cat "$LOG") hard"; [ ! -e "$LOG.asked" ] || touch "$LOG.told"; touch "$LOG.asked"; }
fails() { echo begun; echo "Progress 1 of 2"; ls "$LOG.missing"; echo not reached; }
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


def on_a_terminal(directory: Path, columns: int) -> tuple[int, str]:
    """Run it with one."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, columns))
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
    return process.wait(60), said.decode()


def test_steps_say_how_far_they_are_in_a_log(tmp_path: Path) -> None:
    """Line by line; a step that fails shows the end of its output and where the rest is."""
    status, said = in_a_log(tmp_path)
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
    assert "Progress" not in said


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_steps_take_one_line_of_a_terminal(tmp_path: Path, columns: int) -> None:
    """Written again and again, never wider than the terminal; how far it is outlives what it is."""
    status, said = on_a_terminal(tmp_path, columns)
    assert status == 1
    first, *rest = (line.rstrip("\r") for line in said.split("\n"))
    written = first.replace("\x1b[K", "").split("\r")[1:]
    assert len(written) >= 2, "how far it is, then that it is done"
    assert all(line.startswith("setup: [2/3] ") and len(line) < columns for line in written)
    if columns >= 40:
        assert all(line.endswith(" s: working hard") for line in written[:-1])
        assert " done in " in written[-1]
    if columns >= 80:
        assert all(line.startswith("setup: [2/3] slow (a moment): ") for line in written)
    assert rest[0].replace("\x1b[K", "").split("\r")[-1] == "setup: [3/3] broken"
    assert rest[1] == "begun"


def test_pip_is_said_to_be_how_far(tmp_path: Path) -> None:
    """Packages of the lock file, and the bytes of the one that comes; nothing is guessed before."""
    lock, log = tmp_path / "lock", tmp_path / "log"
    lock.write_text(
        "# made\na==1 ; x \\\n    --hash=1\nb==1 ; y \\\n    --hash=2\nb==2 ; z \\\nc==3 \\\n"
    )
    told = []
    for line in (
        "Looking in links: /x",
        "Requirement already satisfied: a==1 in /x",
        "Collecting b==2 (from -r lock (line 3))",
        "  Downloading b_long-2-py3-none-any.whl.metadata (9 kB)",
        "  Downloading https://mirror/x/b_long-2-py3-none-any.whl (9 MB)",
        "Progress 2000000 of 9000000",
        "Installing collected packages: b, c",
    ):
        with log.open("a") as file:
            file.write(f"{line}\n")
        told.append(
            subprocess.check_output(
                ["bash", "-c", ". .ci/steps; how_far_pip"],
                cwd=ROOT, env={**os.environ, "step_log": str(log), "lock": str(lock)}, text=True,
            ).strip()
        )  # fmt: skip
    assert told == [
        "0 of 3 packages",
        "1 of 3 packages",
        "2 of 3 packages",
        "2 of 3 packages, b_long",
        "2 of 3 packages, b_long",
        "2 of 3 packages, b_long 2 of 9 MB",
        "3 of 3 packages, installing",
    ]


def test_purposes_are_named() -> None:
    """A wrong one changes nothing."""
    done = subprocess.run(
        [ROOT / ".ci" / "setup", "tset"], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (
        2,
        "usage: .ci/setup [dev|test|demo|demo-without-spark]\n",
    )
