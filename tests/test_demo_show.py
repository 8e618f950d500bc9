"""What the demo prints while it works, on a terminal of any width and without one."""

import io
import os
import pty
import termios

import pytest

from gaussdecode.demo.show import Display

PARTS = ("  1.5 s", "   12 345 changes", "lag   1.2 MB", "read queues [0 0 0 0]")


def on_a_terminal(columns: int) -> str:
    """What two lines of progress and a fact write on a terminal."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, columns))
    with os.fdopen(its, "w") as out, os.fdopen(ours, "rb", buffering=0) as screen:
        display = Display(out)
        display.live(*PARTS)
        display.live(*PARTS, is_last=True)
        display.fact("done")
        said = b""
        while not said.endswith(b"done\r\n"):  # a read may give a part
            said += screen.read(4096)
        return said.decode()


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (0, f"    {'  '.join(PARTS)}"),  # it does not say: as wide as most are
        (10, "      1.5"),
        (40, f"    {'  '.join(PARTS[:2])}"),
        (45, f"    {'  '.join(PARTS[:3])}"),
        (44, f"    {'  '.join(PARTS[:2])}"),
        (80, f"    {'  '.join(PARTS)}"),
    ],
)
def test_progress_is_one_line_of_a_terminal(columns: int, line: str) -> None:
    """Written again, and narrower than the terminal: the last parts are left out."""
    assert on_a_terminal(columns) == f"\r\x1b[K{line}\r\x1b[K{line}\r\n    done\r\n"
    assert columns == 0 or len(line) < columns


def test_progress_without_a_terminal_is_whole_lines() -> None:
    """Every other second, and the last one always."""
    out = io.StringIO()
    display = Display(out)
    for _ in range(3):
        display.live(*PARTS)
    display.live(*PARTS, is_last=True)
    assert out.getvalue() == f"    {'  '.join(PARTS)}\n" * 2
