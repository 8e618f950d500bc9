"""The guard of the benches judges as it says, and its counter counts."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "bench"))

allocations = importlib.import_module("allocations")  # mypy does not read the benches
check = importlib.import_module("check")

PROGRAM = """
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    void *volatile held = NULL;
    void *aligned;
    for (int number = 0; number < 1000; number++)
        free((held = malloc(100)));
    held = realloc(calloc(10, 10), 1000);
    if (posix_memalign(&aligned, 64, 100) || ((size_t)aligned & 63))
        return 1;
    if (fork() == 0) {
        for (int number = 0; number < 500; number++)
            free((held = malloc(100)));
        kill(getpid(), SIGKILL);
    }
    wait(NULL);
    _exit(0);
}
"""


@pytest.mark.parametrize(
    ("kind", "kept", "now", "outcome"),
    [
        ("cpu", 2.0, 2.19, "fine"),
        ("cpu", 2.0, 2.21, "worse"),
        ("cpu", 2.0, 1.81, "fine"),
        ("cpu", 2.0, 1.79, "better"),
        ("cpu", None, 2.0, "unknown"),
        ("calls", 0.0, 0.9, "fine"),
        ("calls", 0.0, 1.1, "worse"),
        ("calls", 0.9, 0.0, "fine"),
        ("calls", 300.0, 331.0, "worse"),
        ("calls", 300.0, 269.0, "better"),
    ],
)
def test_tenth_is_the_bound(kind: str, kept: float | None, now: float, outcome: str) -> None:
    """More than a tenth is worse or better; few calls may differ by one in a thousand rows."""
    assert check.judge("narrow", kind, kept, now).outcome == outcome


def test_every_figure_is_judged() -> None:
    """What was not kept is said, and what is worse stands out."""
    now = {"cpu": {"narrow": 1.0, "wide": 4.0}, "calls": {"narrow": 200.0, "wide": 900.0}}
    verdicts = check.compare({"cpu": {"narrow": 0.8, "wide": 4.1}}, now)
    assert [one.outcome for one in verdicts] == ["worse", "fine", "unknown", "unknown"]
    shown = check.table(verdicts).splitlines()
    assert shown[1].split() == ["narrow", "cpu", "0.800", "1.000", "+25.0", "%", "0.880", "WORSE"]
    assert shown[3].endswith("nothing kept")


def test_instructions_of_perf() -> None:
    """The count is read; a machine without counters gives none."""
    assert check.instructions_of("# started\n\n123456,,instructions:u,1000,100.00,,\n") == 123456
    assert check.instructions_of("<not supported>,,instructions:u,0,100.00,,\n") == 0


def test_calls_are_counted_however_a_process_ends(tmp_path: Path) -> None:
    """A process that is killed and one that ends at once have both been counted."""
    program, source, counts = tmp_path / "program", tmp_path / "program.c", tmp_path / "counts"
    source.write_text(PROGRAM)
    counts.mkdir()
    subprocess.run(["gcc", "-O0", "-o", program, source], check=True)
    library = allocations.build(tmp_path)
    environment = allocations.environment(library, counts)
    subprocess.run([program], env=environment, check=True)
    assert 1503 <= allocations.total(counts) < 1550
