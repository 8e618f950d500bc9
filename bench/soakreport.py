"""What a soak says: figures from Prometheus and from /proc, and alerts beside their faults."""

import dataclasses
import re
import statistics
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from kit.daemon import Daemon
from kit.prometheus import Prometheus
from kit.rules import installed
from soakfaults import BY_LOAD, Fault

_STEP: Final = 5.0
_AFTER: Final = 60.0  # an alert may come so long after its fault: scrapes, `for:`, recovery
_HOUR: Final = 3600.0
_MIB: Final = 2**20

Points = list[tuple[float, float]]
Json = dict[str, Any]  # Any: JSON


@dataclasses.dataclass(frozen=True, slots=True)
class Happened:
    """A fault and when it was."""

    fault: Fault
    began: float
    ended: float


class MemoryWatch(threading.Thread):
    """Looks at the resident memory of every process of a daemon.

    Attributes:
        seen: (time, bytes) by name and process id; anonymous memory, and shared apart.
    """

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon=True)
        self._daemon = daemon
        self.is_over = threading.Event()
        self.seen: dict[tuple[str, int], Points] = {}
        self.shared: dict[tuple[str, int], int] = {}

    def run(self) -> None:
        """Look every five seconds."""
        while not self.is_over.wait(_STEP):
            if self._daemon.is_running:
                self._look()

    def _look(self) -> None:
        for name, pid in {"main": self._daemon.pid, **self._daemon.children()}.items():
            try:
                text = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            found = {
                key: int(kb) * 1024
                for key, kb in re.findall(r"^Rss(\w+):\s+(\d+)", text, re.MULTILINE)
            }
            if found:
                self.seen.setdefault((name, pid), []).append((time.time(), found["Anon"]))
                key = (name, pid)
                self.shared[key] = max(self.shared.get(key, 0), found["Shmem"])

    def report(self) -> Json:
        """By name: most ever, and how flat the longest life was."""
        result: Json = {}
        for name in sorted({name for name, _ in self.seen}):
            lives = [(key, points) for key, points in self.seen.items() if key[0] == name]
            key, longest = max(lives, key=lambda item: item[1][-1][0] - item[1][0][0])
            result[name] = {
                "lives": len(lives),
                "max_mib": round(max(v for _, points in lives for _, v in points) / _MIB, 1),
                "shared_mib": round(self.shared[key] / _MIB, 1),
                "longest_life": flatness(longest),
            }
        return result


def flatness(points: Points) -> Json:
    """How a series moved over its second half."""
    began, ended = points[0][0], points[-1][0]
    half = [point for point in points if point[0] >= (began + ended) / 2]
    quarter = max(1, len(half) // 2)
    values = [value for _, value in half]
    return {
        "minutes": round((ended - began) / 60, 1),
        "second_half_median_mib": round(statistics.median(values) / _MIB, 1),
        "third_quarter_median_mib": round(statistics.median(values[:quarter]) / _MIB, 1),
        "last_quarter_median_mib": round(statistics.median(values[-quarter:]) / _MIB, 1),
        "slope_mib_per_hour": round(_slope(half) * _HOUR / _MIB, 2),
    }


def _slope(points: Points) -> float:
    """Of the straight line with the least squares; 0 where there is none."""
    if len({at for at, _ in points}) < 2:
        return 0.0
    times, values = zip(*points, strict=True)
    return statistics.linear_regression(times, values).slope


class Report:
    """Asks Prometheus about the time of a soak.

    Args:
        prometheus: still running.
        began: seconds since 1970.
        ended: likewise.
    """

    def __init__(self, prometheus: Prometheus, began: float, ended: float) -> None:
        self._prometheus = prometheus
        self._began = began
        self._ended = ended

    def number(self, expression: str) -> float | None:
        """One value at the end; None where there is no series. ``$T`` is the whole time."""
        text = expression.replace("$T", f"{round(self._ended - self._began)}s")
        found = self._prometheus.query(text)
        return round(float(found[0]["value"][1]), 3) if found else None

    def _points(self, expression: str) -> list[tuple[Json, Points]]:
        found = self._prometheus.query_range(expression, self._began, self._ended, _STEP)
        return [
            (series["metric"], [(float(at), float(text)) for at, text in series["values"]])
            for series in found
        ]

    def figures(self) -> Json:
        """Memory, lag, throughput, restarts."""
        lag = "gaussdecode_source_lag"
        return {
            "lag_seconds_max": self.number(f"max_over_time({lag}_seconds[$T])"),
            "lag_seconds_p99": self.number(f"quantile_over_time(0.99, {lag}_seconds[$T])"),
            "lag_seconds_median": self.number(f"quantile_over_time(0.5, {lag}_seconds[$T])"),
            "lag_bytes_max": self.number(f"max_over_time({lag}_bytes[$T])"),
            "lag_bytes_p99": self.number(f"quantile_over_time(0.99, {lag}_bytes[$T])"),
            "main_resident_max_bytes": self.number(
                "max_over_time(process_resident_memory_bytes[$T])"
            ),
            "main_resident": self._last_life("process_resident_memory_bytes"),
            "open_files_max": self.number("max_over_time(process_open_fds[$T])"),
            "memory_budget_bytes": self.number("gaussdecode_daemon_memory_budget_bytes"),
            "answered_scrapes": self.number("avg_over_time(up[$T])"),
            "starts_seen": self.number("changes(gaussdecode_daemon_start_time_seconds[$T])"),
        }

    def _last_life(self, name: str) -> Json:
        """How flat a gauge was since the last start of the daemon."""
        (_, points), *_ = self._points(name)
        started = self._points("gaussdecode_daemon_start_time_seconds")[0][1][-1][1]
        return flatness([point for point in points if point[0] > started + 2 * _STEP])

    def alerts(self, happened: Sequence[Happened]) -> Json:
        """Which alerts fired, when, and which fault each belongs to."""
        firing: dict[str, Points] = {}
        for labels, points in self._points('ALERTS{alertstate="firing"}'):
            firing.setdefault(labels["alertname"], []).extend(points)
        fired = {
            name: self._fired(name, [at for at, _ in points], happened)
            for name, points in sorted(firing.items())
        }
        names = {rule["alert"] for rule in installed()}
        return {
            "fired": fired,
            "unexplained": sorted(name for name, seen in fired.items() if not seen["faults"]),
            "quiet": sorted(names - fired.keys()),
        }

    def _fired(self, name: str, times: list[float], happened: Sequence[Happened]) -> Json:
        """When an alert fired, and the faults before its first moments."""
        times.sort()
        starts = [
            at for before, at in zip([0.0, *times], times, strict=False) if at - before > 3 * _STEP
        ]
        faults = [
            one.fault.name
            for one in happened
            if name in one.fault.alerts
            and any(one.began <= at <= one.ended + _AFTER for at in starts)
        ]
        if name in BY_LOAD:
            faults.append("the load")
        return {
            "at_minutes": [round((at - self._began) / 60, 1) for at in starts],
            "faults": faults,
        }
