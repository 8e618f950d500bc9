"""The tutorial, typed line by line on a new machine, then a day of the slot, and what was answered.

Each step is a heading of docs/tutorial.md with its indented lines: SQL for psql, as the
superuser of the source; all else for a shell of root's. What was typed and answered is one
text, which docs/tutorial-run.md keeps of one run; two runs are compared by `alike`.
"""

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from kit.machine import Machine
from kit.postgres import Postgres

_DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = _DOCS / "tutorial.md"
RECORD: Final = _DOCS / "tutorial-run.md"
_SQL: Final = re.compile(r"(ALTER|CREATE|GRANT|INSERT|SELECT|UPDATE) ")
_NUMBER: Final = re.compile(
    r"\b[0-9A-F]+/[0-9A-F]+\b|\b\d{4}-\d\d-\d\d[ T][\d:.]+(Z|\+00:00)?|\d[\d.,]*( ?[kMG]?i?B\b)?"
)
_HEAD: Final = """\
# The tutorial, carried out

This page shows every command of [tutorial.md](tutorial.md) and its output. The machine was new: Debian 12 with systemd,
Prometheus and PostgreSQL 15 with TLS. Then follows a day of the slot, from a new password to its end
([operate.md](operate.md#act-on-a-running-daemon), [procedures.md](procedures.md)). `make test` repeats the run with the current sources and
compares the output. Numbers, positions and times may differ.
"""


class Step(NamedTuple):
    """A numbered part of the page."""

    heading: str
    lines: list[str]
    text: str


def steps() -> list[Step]:
    """Of the page, in order."""
    parts = re.split(r"^## (.*)\n", PAGE.read_text(), flags=re.MULTILINE)[1:]
    found = zip(parts[::2], parts[1::2], strict=True)
    return [
        Step(head, [line.strip() for line in text.splitlines() if line.startswith("    ")], text)
        for head, text in found
    ]


class Reader:
    """Carries the tutorial out, and keeps what was typed and answered.

    Args:
        machine: of the daemon.
        server: the source.
        database: its name there.
        words: what stands for each placeholder.
        hidden: what stands in the record for what is another in each run.
    """

    def __init__(
        self,
        machine: Machine,
        server: Postgres,
        database: str,
        words: Mapping[str, str],
        hidden: Mapping[str, str],
    ) -> None:
        self._machine, self._server, self._database = machine, server, database
        self._words, self._hidden = words, hidden
        self._said: list[str] = []

    def carry_out(self, step: Step, afterwards: Mapping[str, Callable[[], None]]) -> None:
        """Type the lines of a step.

        Args:
            step: of the page.
            afterwards: what else happens, by the words in the text that ask for it; before the
                lines that come after them.
        """
        self.begin(step.heading)
        for paragraph in step.text.split("\n\n"):
            for line in paragraph.splitlines():
                if line.startswith("    "):
                    self.type(line.strip())
            for words, do in afterwards.items():
                if words in paragraph:
                    do()

    def text(self) -> str:
        """The record."""
        return _HEAD + "\n".join(self._said).rstrip() + "\n"

    def begin(self, heading: str) -> None:
        """Put what is typed from now on below a heading."""
        self._said += ["", f"## {heading}", ""]

    def type(self, line: str) -> str:
        """Type a line, which must succeed; gives what it answered."""
        line = self.filled_in(line)
        is_sql = _SQL.match(line) is not None
        answer = self._query(line) if is_sql else self._machine.do(f"{{ {line}\n}} 2>&1")
        prompt = f"{self._database}=#" if is_sql else "#"
        shown = [f"{prompt} {line}", *_without_progress(line, answer.splitlines())]
        for found, stands in self._hidden.items():
            shown = [each.replace(found, stands) for each in shown]
        self._said += [f"    {each}".rstrip() for each in shown]
        return answer

    def filled_in(self, line: str) -> str:
        """A line with what stands for its placeholders."""
        for name, value in self._words.items():
            line = re.sub(rf"(?<![A-Z]){name}(?![A-Z])", value, line)
        return line

    def _query(self, line: str) -> str:
        psql = str(self._server.program("psql"))
        dsn = self._server.dsn(self._database)
        command = [psql, "-X", "-v", "ON_ERROR_STOP=1", "-d", dsn, "-c", line]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return done.stdout


def _without_progress(line: str, answer: list[str]) -> list[str]:
    """What pip installed, and not how."""
    is_pip = "/pip install" in line
    return [each for each in answer if not is_pip or each.startswith("Successfully")]


def alike(record: str) -> list[str]:
    """Lines of a record as far as they are the same in every run."""
    found = re.sub(r"(?m)^(    Successfully installed).*", r"\1", record)
    found = re.sub(r"(?m)^ *entry \d+: changes of .*\n", "", found)  # how many it takes is chance
    found = re.sub(r'(?m)^ *Removed ".*\n', "", found)  # systemd's order
    found = _NUMBER.sub("N", found)
    found = re.sub(r"  +", "  ", re.sub(r"--+", "--", found))
    return [line.rstrip() for line in found.splitlines()]
