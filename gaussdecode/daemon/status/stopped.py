"""A process of a session that does not run: stopped by a signal or a debugger, or stuck in the kernel.

The queues around such a process are full and empty as if it were slow, so it is looked for before a limit is
named (`status.sources.find_stopped`). Reader and decoders show a sign of life twice a second, also while they
wait.
"""

import dataclasses
from typing import Final

from gaussdecode.ipc.process import STUCK_SECONDS

STOPPED: Final = frozenset("Tt")  # states of proc(5)


@dataclasses.dataclass(frozen=True, slots=True)
class Stopped:
    """One process that does not run.

    Attributes:
        name: its role: ``reader``, ``decoder 1``; with its source where there are several.
        pid: its number.
        state: letter of the kernel; T and t are stopped.
        seconds: time since its last sign of life.
    """

    name: str
    pid: int
    state: str
    seconds: float

    @property
    def is_reader(self) -> bool:
        """Whether it receives; else it decodes."""
        return self.name.startswith("reader")

    @property
    def what(self) -> str:
        """Say so, as a sentence."""
        who = f"The {self.name} (process {self.pid})"
        if self.state in STOPPED:
            return f"{who} is stopped, by a signal or a debugger. Nothing lands until it goes on."
        return (
            f"{who} has not moved for {self.seconds:.0f} s, in state {self.state} of the kernel. Nothing "
            "lands until it does."
        )

    @property
    def command(self) -> str:
        """What to run."""
        is_stopped = self.state in STOPPED
        return f"kill -CONT {self.pid}" if is_stopped else f"cat /proc/{self.pid}/stack"

    @property
    def action(self) -> str:
        """The remedy, as a sentence."""
        does = "lets it go on" if self.state in STOPPED else "shows what it waits for"
        return (
            f"`{self.command}` {does}. After {STUCK_SECONDS:.0f} s without a sign of life the daemon ends, "
            "and continues from the last entry at its next start."
        )
