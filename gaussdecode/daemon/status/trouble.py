"""What a state of a daemon is, the troubles that are so now, and their causes.

========= =================================== ========================= =======================
severity  means                               ``gaussdecode status``    its alert
========= =================================== ========================= =======================
error     changes are lost, will be soon, or  ends with 69              critical
          stand still, or a table lacks some
warning   look at it in the working day       ends with 0, and says so  warning
note      passes by itself                    as `is_unready` says      one of those that last
========= =================================== ========================= =======================

One cause may show itself in several states: a full disk is a lag too, and WAL that the server
keeps. All of them are told to machines; people are told causes (`find_causes`), with what follows
from each by `State.explains`.

``/readyz`` is 503 where nothing is received or nothing can land (`is_unready`), and then
``status`` ends with 69 too. What is wrong with one table or with the past leaves a daemon ready: it
is said in the body.
"""

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gaussdecode.daemon.status.seen import Seen


class Severity(enum.StrEnum):
    """How bad a state is."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Told(NamedTuple):
    """The problem and the remedy; both are sentences."""

    what: str
    action: str


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """One row.

    Attributes:
        name: name in ``/status``.
        severity: see above.
        alert: the rule that fires when it lasts; its section of docs/alerts.md says more.
        tell: whether it is so, and what to say; None where only others can see it.
        is_unready: nothing is received, or nothing can land.
        explains: names of states that may be nothing but its consequences, and theirs.
    """

    name: str
    severity: Severity
    alert: str
    tell: Callable[[Seen], Told | None] | None
    is_unready: bool = False
    explains: frozenset[str] = frozenset()

    @property
    def runbook(self) -> str:
        """Path of the runbook that every daemon serves."""
        return f"/alerts#{self.alert.lower()}"

    @property
    def ends_status(self) -> bool:
        """``gaussdecode status`` ends with 69."""
        return self.is_unready or self.severity is Severity.ERROR


@dataclasses.dataclass(frozen=True, slots=True)
class Trouble:
    """A state that is so now.

    Attributes:
        state: the row.
        what: is wrong.
        action: remedy.
    """

    state: State
    what: str
    action: str

    def to_record(self) -> dict[str, object]:
        """Make it fit for JSON."""
        return {
            "name": self.state.name,
            "severity": str(self.state.severity),
            "is_unready": self.state.is_unready,
            "what": self.what,
            "action": self.action,
            "alert": self.state.alert,
            "runbook": self.state.runbook,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Cause:
    """A trouble that no other explains.

    Attributes:
        trouble: itself.
        consequences: troubles that it explains.
    """

    trouble: Trouble
    consequences: tuple[Trouble, ...] = ()

    @property
    def severity(self) -> Severity:
        """That of the worst of them."""
        return min((t.state.severity for t in (self.trouble, *self.consequences)), key=rank)

    def to_record(self) -> dict[str, object]:
        """Make it fit for JSON."""
        return {
            **self.trouble.to_record(),
            "severity": str(self.severity),
            "consequences": [trouble.what for trouble in self.consequences],
        }


def find_causes(troubles: Sequence[Trouble]) -> list[Cause]:
    """Gather what follows from the same cause; the worst first.

    Args:
        troubles: troubles of one moment, the worst first.
    """
    explained = {name for trouble in troubles for name in trouble.state.explains}
    left = [trouble for trouble in troubles if trouble.state.name in explained]
    causes = []
    for trouble in troubles:
        if trouble.state.name in explained:
            continue
        mine = tuple(other for other in left if other.state.name in trouble.state.explains)
        left = [other for other in left if other not in mine]
        causes.append(Cause(trouble, mine))
    return sorted(causes, key=lambda cause: rank(cause.severity))


def readiness(troubles: list[Trouble]) -> tuple[bool, str]:
    """Whether changes are received and can land, and a text for probes and people."""
    blocking = [trouble.what for trouble in troubles if trouble.state.is_unready]
    if blocking:
        return False, "\n".join(blocking)
    others = [trouble.what for trouble in troubles if trouble.state.severity is not Severity.NOTE]
    return True, "\n".join(["ready", *others])


def rank(severity: Severity) -> int:
    """Its place in order, the worst first."""
    return list(Severity).index(severity)
