"""Report of `check`: a verdict, problems, findings, and then the plan.

Pure: `check` fills a `Report`, which becomes lines for people or one document for programs. The
verdict and the things to do come first. Without further sections everything fits on one screen.
"""

import dataclasses
import enum
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final

from gaussdecode.console.table import table_lines
from gaussdecode.errors import EX_CONFIG, EX_OK, EX_UNAVAILABLE
from gaussdecode.model.words import counted
from gaussdecode.operations.check.doctor import Finding

_INDENT: Final = 14  # of the plan's texts, after their names


class Verdict(enum.StrEnum):
    """Whether the daemon can run with a configuration."""

    READY = "ready"
    READ = "read"
    UNREACHED = "unreached"
    WRONG = "wrong"


_STATUS: Final = {
    Verdict.READY: EX_OK,
    Verdict.READ: EX_OK,
    Verdict.UNREACHED: EX_UNAVAILABLE,
    Verdict.WRONG: EX_CONFIG,
}
_SENTENCE: Final = {
    Verdict.READY: "the daemon can run",
    Verdict.READ: "the configuration is right; server, landing and port were not looked at",
    Verdict.UNREACHED: "the configuration is right, and the server cannot be reached",
    Verdict.WRONG: "the daemon cannot run",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Grid:
    """A table of the report.

    Attributes:
        title: title over the table.
        columns: names, in lower case.
        rows: rows of as many cells as columns.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]

    def to_records(self) -> list[dict[str, str]]:
        """One object for each row."""
        keys = [column.replace(" ", "_") for column in self.columns]
        return [dict(zip(keys, row, strict=True)) for row in self.rows]


@dataclasses.dataclass(slots=True)
class Report:
    """The full report of `check`.

    Attributes:
        name: name of the file.
        is_offline: only the file was read.
        problems: problems that keep the daemon from running.
        unreached: reason why the server does not answer, or None.
        findings: findings of the doctor.
        notes: facts for the operator that need no action.
        unexamined: checks that could not run.
        facts: the plan: names and texts.
        grids: tables, by the option that shows them.
    """

    name: str
    is_offline: bool = False
    problems: list[str] = dataclasses.field(default_factory=list)
    unreached: str | None = None
    findings: list[Finding] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    unexamined: list[str] = dataclasses.field(default_factory=list)
    facts: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    grids: dict[str, Grid] = dataclasses.field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """Whether the daemon can run."""
        if self.problems:
            return Verdict.WRONG
        if self.unreached is not None:
            return Verdict.UNREACHED
        return Verdict.READ if self.is_offline else Verdict.READY

    @property
    def exit_status(self) -> int:
        """Exit status of `check`."""
        return _STATUS[self.verdict]

    def to_record(self) -> dict[str, Any]:  # Any: JSON
        """The document of ``--json``: the same, with every table."""
        return {
            "file": self.name,
            "verdict": str(self.verdict),
            "exit_status": self.exit_status,
            "problems": self.problems,
            "unreached": self.unreached,
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "not_examined": self.unexamined,
            "notes": self.notes,
            "plan": dict(self.facts),
            **{name: grid.to_records() for name, grid in self.grids.items()},
        }

    def lines(self, shown: Sequence[str], width: int | None) -> Iterator[str]:
        """The full report for people.

        Args:
            shown: names of wanted tables.
            width: width of the terminal; None to fold nothing.
        """
        yield from self.brief_lines(width)
        if self.notes:
            yield "\nnotes"
            for note in self.notes:
                yield from _folded(" - ", note, width)
        if self.facts:
            yield ""
            for name, text in self.facts:
                yield from _folded(f" {name:<{_INDENT - 2}} ", text, width)
        for name in shown:
            grid = self.grids.get(name)
            if grid is not None and grid.rows:
                yield f"\n{grid.title}"
                yield from table_lines(grid.columns, grid.rows, width)

    def brief_lines(self, width: int | None) -> Iterator[str]:
        """The verdict and the things to do."""
        yield from _folded("", f"{self.name}: {_SENTENCE[self.verdict]}{self._counted()}", width)
        problems = self.problems if self.unreached is None else [*self.problems, self.unreached]
        if problems:
            yield "\nproblems"
            for problem in problems:
                yield from _folded(" - ", problem, width)
        if self.findings or self.unexamined:
            heads = [str(len(self.findings))] if self.findings else []
            if self.unexamined:
                heads.append(f"not examined: {', '.join(self.unexamined)}")
            yield f"\nfindings: {'; '.join(heads)}"
        for finding in self.findings:
            yield from _folded(" - ", finding.what, width)
            yield from _folded("   why:  ", finding.why, width)
            yield f"   do:   {finding.remedy}"  # never folded, to be copied

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing to do."""
        return self.exit_status == EX_OK and not self.findings

    def _counted(self) -> str:
        if self.problems:
            return f": {counted(len(self.problems), 'problem')}"
        found = len(self.findings)
        if self.is_offline or (self.unreached is not None and not found):
            return ""
        return f"; {counted(found, 'finding')}" if found else "; no problems found"


def _folded(head: str, text: str, width: int | None) -> Iterator[str]:
    """Fold a text after a head; the following lines have the same indent."""
    if width is None:
        yield head + text
        return
    yield from textwrap.wrap(
        head + text,
        max(width, len(head) + _INDENT),
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    ) or [head]
