"""Find processes of a session that do not run: stopped by a signal or a debugger, or stuck in the kernel.

The queues around such a process are full and empty as if it were slow, so it is looked for before a limit is
named. Reader and decoders show a sign of life twice a second, also while they wait.
"""

import dataclasses
from typing import Final

from gaussdecode.daemon.session import STUCK_SECONDS, Session
from gaussdecode.daemon.session_group import SessionGroup
from gaussdecode.daemon.status.processes import read_use

_STOPPED: Final = frozenset("Tt")  # states of proc(5)
_UNMOVED_SECONDS: Final = 30.0  # a reader may ask the server for so long; arbitrary


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
        if self.state in _STOPPED:
            return f"{who} is stopped, by a signal or a debugger. Nothing lands until it goes on."
        return (
            f"{who} has not moved for {self.seconds:.0f} s, in state {self.state} of the kernel. Nothing "
            "lands until it does."
        )

    @property
    def command(self) -> str:
        """What to run."""
        is_stopped = self.state in _STOPPED
        return f"kill -CONT {self.pid}" if is_stopped else f"cat /proc/{self.pid}/stack"

    @property
    def action(self) -> str:
        """The remedy, as a sentence."""
        does = "lets it go on" if self.state in _STOPPED else "shows what it waits for"
        return (
            f"`{self.command}` {does}. After {STUCK_SECONDS:.0f} s without a sign of life the daemon ends, "
            "and continues from the last entry at its next start."
        )


def find_stopped(session: Session | SessionGroup | None) -> tuple[Stopped, ...]:
    """Look at reader and decoders of every source.

    Args:
        session: the running one, or None between two.
    """
    if session is None:
        return ()
    named = session.sessions if isinstance(session, SessionGroup) else {"": session}
    found = []
    for source, one in named.items():
        ages = one.signs_of_life()
        for name, pid in one.process_ids().items():
            use, age = read_use(pid), ages.get(name, 0.0)
            if use is not None and (use.state in _STOPPED or age >= _UNMOVED_SECONDS):
                title = f"{name} of {source}" if len(named) > 1 else name
                found.append(Stopped(title, pid, use.state, age))
    return tuple(found)
