"""One landing of a recording whose stages say what CPU time they spend (`stagecpu.py`)."""

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import corpus  # noqa: F401 - finds the package's test kit
import throttle
from kit.capacity import Costs, Setup

from gaussdecode.daemon.status.limit import Stage
from gaussdecode.settings.sections import LandingConfig

LANES: Final = LandingConfig(root=Path("/")).lanes
OTHER: Final = "other"
_COMMAND: Final = (sys.executable, str(Path(__file__).parent / "stagecpu.py"))


@dataclasses.dataclass(frozen=True, slots=True)
class Way:
    """How a recording is landed.

    Attributes:
        cpus: it is pinned to.
        decoders: as of `Setup`.
        throttled: stage whose processes are throttled; None for none.
        share: of a core that each of them may use.
        sink: `parquet` or `null`, see `stagecpu.py`.
    """

    cpus: str
    decoders: int
    throttled: Stage | None = None
    share: float = 1.0
    sink: str = "parquet"

    @property
    def cores(self) -> int:
        """How many."""
        return len(self.cpus.split(","))

    def __str__(self) -> str:
        sink = "" if self.sink == "parquet" else f"{self.sink}_"
        slow = "" if self.throttled is None else f"_{self.throttled}_at_{self.share:.0%}"
        return f"{sink}decoders_{self.decoders}_cores_{self.cores}{slow}"


@dataclasses.dataclass(frozen=True, slots=True)
class Landed:
    """What one landing did.

    Attributes:
        gb_per_second: of wire.
        costs: of its stages.
        setup: what it ran on.
    """

    gb_per_second: float
    costs: Costs
    setup: Setup

    @property
    def busy(self) -> float:
        """Share of its cores' time that it used; what is missing are waits."""
        return self.gb_per_second * self.costs.total / self.setup.cores


class Landing:
    """A landing under way."""

    def __init__(self, path: Path, root: Path, way: Way) -> None:
        shutil.rmtree(root, ignore_errors=True)
        self._size, self._way = path.stat().st_size, way
        self._costs = root.with_suffix(".costs")
        self._process = subprocess.Popen(
            ["taskset", "-c", way.cpus, *_COMMAND, str(self._costs), way.sink, str(path),
             "--root", str(root), "--decoders", str(way.decoders), "--json"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def result(self) -> Landed:
        """Wait for its end, throttling it as it goes where its way says so."""
        way, shares = self._way, dict[Stage, float]()
        if way.throttled is not None:
            shares[way.throttled] = way.share
            throttle.throttle(self._process, way.share)
        if self._process.wait():
            raise SystemExit(f"a landing ({way}) failed with status {self._process.returncode}")
        record = json.loads(self._costs.read_text())
        spent = {stage: cpu / self._size * 1e9 for stage, cpu in record["cpu"].items()}
        other = spent.pop(OTHER)
        costs = Costs({Stage(stage): cost for stage, cost in spent.items()}, other)
        cores = way.cores - record["taken"] / record["seconds"]
        setup = Setup(cores, way.decoders, LANES, shares)
        return Landed(self._size / record["seconds"] / 1e9, costs, setup)
