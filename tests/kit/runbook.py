"""What docs/procedures.md and docs/alerts.md tell an operator to type, and operators who do it.

An `Operator` has a daemon of the kit; `Root` is the reader of these pages: root, on a machine
where systemd runs the unit.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gaussdecode.errors import EX_IOERR, EX_OK
from kit.daemon import Daemon
from kit.installed import Installed

_DOCS: Final = Path(__file__).parents[2] / "docs"
PROCEDURES: Final = _DOCS / "procedures.md"
ALERTS: Final = _DOCS / "alerts.md"
_TYPED: Final = re.compile(r"`((?:gaussdecode|systemctl|journalctl) [^`]*)`")


def lines_of(heading: str) -> list[str]:
    """Commands below a heading of the guide, in order."""
    text = PROCEDURES.read_text()
    section = text.split(f"\n### {heading}\n")[1]
    section = re.split(r"^##", section, maxsplit=1, flags=re.MULTILINE)[0]
    return [line.strip() for line in section.splitlines() if line.startswith("    ")]


class Operator:
    """Carries out lines of the guide.

    Args:
        daemon: that systemctl is about; may be changed.
        words: what stands for each placeholder.
        old_host: where the files of the host behind ``ssh OLD`` are, by their true places.
    """

    def __init__(
        self, daemon: Daemon, words: Mapping[str, str], old_host: Mapping[str, str] | None = None
    ) -> None:
        self.daemon = daemon
        self.words = dict(words)
        self.old_host = dict(old_host or {})

    def carry_out(self, line: str) -> str:
        """Do what a line says and give what it printed."""
        line = self.filled_in(line)
        if line.startswith("systemctl "):
            return self._systemctl(line)
        if line.startswith("ALTER PUBLICATION "):
            self.daemon.database.execute(line)
            return ""
        if line.startswith("gaussdecode "):
            return self._run([sys.executable, "-m", *shlex.split(line)])
        return self._run(["bash", "-o", "pipefail", "-ec", self._at_hand(line)])

    def filled_in(self, line: str) -> str:
        """A line with what stands for its placeholders."""
        for name, value in self.words.items():
            line = re.sub(rf"(?<![A-Z]){re.escape(name)}(?![A-Z])", value, line)
        return line

    def _systemctl(self, line: str) -> str:
        assert line.endswith(f" gaussdecode@{self.words['SLOT']}"), line
        verb = line.split()[1]
        if verb in {"disable", "stop", "restart"}:
            assert self.daemon.stop() == EX_OK
        if verb in {"enable", "start", "restart"}:
            self.daemon.start()
            self.daemon.wait_for_state("streaming")
        return ""

    def _at_hand(self, line: str) -> str:
        """The other host is here, its directories lie elsewhere."""
        far, bar, near = line.partition("|")
        if far.startswith("ssh OLD "):
            far = far.removeprefix("ssh OLD ")
            for true, place in self.old_host.items():
                far = far.replace(true, place)
        return far + bar + near

    @staticmethod
    def _run(command: list[str]) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode in {EX_OK, EX_IOERR}, f"{command}: {done.stdout}{done.stderr}"
        assert done.returncode == EX_OK or "gaps" in command, done.stderr
        return done.stdout


def typed_in_runbooks() -> list[str]:
    """Commands that the runbooks of the alerts name, each once, in the order of the page."""
    text = " ".join(ALERTS.read_text().split())
    found = dict.fromkeys(_TYPED.findall(text))
    return [line for line in found if " CONFIG" in line or "ROOT" in line or "SLOT" in line]


class Root:
    """Root on the machine of an installed daemon: types every line as it stands.

    Args:
        daemon: that the words of the page are about; may be changed.
        words: what stands for other placeholders.
    """

    def __init__(self, daemon: Installed, **words: str) -> None:
        self.daemon = daemon
        name = daemon.database.name
        own = {"CONFIG": str(daemon.config_path), "ROOT": str(daemon.place), "SLOT": name}
        self._operator = Operator(daemon, {**own, **words})
        self.words = self._operator.words

    def carry_out(self, line: str) -> str:
        """Do what a line says and give what it printed."""
        line = self._operator.filled_in(line)
        if line.startswith("ALTER "):
            self.daemon.database.execute(line)
            return ""
        done = self.daemon.machine.run(f"set -o pipefail; {line}")
        found = done.status == EX_IOERR and line.startswith("gaussdecode gaps ")
        assert done.status == EX_OK or found, f"{line}: status {done.status}\n{done.text}"
        return done.text
