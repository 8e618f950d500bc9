"""Take over the terminal for a live command, and restore it afterwards."""

import contextlib
import os
import re
import select
import sys
import termios
import tty
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l"  # another screen, no cursor, no wrapping
_LEAVE: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_USUAL: Final = 80, 24  # where the terminal does not know its size
_MOST: Final = 1024  # bytes that are read at once
_KEY: Final = re.compile(r"\x1b[\[O][A-Z]|.", re.DOTALL)
_KEYS: Final = {"\x1b[A": "up", "\x1bOA": "up", "\x1b[B": "down", "\x1bOB": "down"}


class Terminal:
    """Shows full screens and reads keys; created by `taken`."""

    def __init__(self) -> None:
        self._shown: tuple[object, ...] = ()
        self._typed: deque[str] = deque()

    @property
    def size(self) -> tuple[int, int]:
        """Current columns and lines."""
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
        return columns or _USUAL[0], lines or _USUAL[1]

    def show(self, lines: Sequence[str]) -> None:
        """Replace the screen by these lines."""
        if self._shown != (self.size, *lines):
            self._shown = (self.size, *lines)
            # Erased first: after a line of full width the cursor is still on its last letter.
            text = "\n\x1b[J".join(lines)
            sys.stdout.write(f"\x1b[H\x1b[J{text}")
            sys.stdout.flush()

    def key(self, seconds: float) -> str | None:
        """The next key (``up``, ``down`` or a letter), or None if none is pressed in this many seconds."""
        if not self._typed:
            ready, _, _ = select.select([sys.stdin], [], [], seconds)
            if not ready:
                return None
            typed = os.read(sys.stdin.fileno(), _MOST).decode(errors="replace")
            self._typed.extend(_KEY.findall(typed) or "q")  # an end of input ends what reads it
        key = self._typed.popleft()
        return _KEYS.get(key, key)


@contextlib.contextmanager
def taken() -> Iterator[Terminal]:
    """Take over the terminal, and restore it however this ends."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        sys.stdout.write(_ENTER)
        yield Terminal()
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
