"""Show metrics to Prometheus."""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client import generate_latest as _generate

from gaussdecode.metrics.metric import Labels, Metric
from gaussdecode.metrics.table import METRICS
from gaussdecode.model.exposition import label_value
from gaussdecode.model.histogram import BOUNDS, Counted

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
Snapshot = Mapping[str, Mapping[Labels, float]]
_BUCKETS: Final = (*(f"{bound:g}" for bound in BOUNDS), "+Inf")


def histogram_values(
    name: str, counted: Mapping[Labels, Counted]
) -> dict[str, dict[Labels, float]]:
    """A histogram as a snapshot holds it: each bucket with those below it, sum and number.

    Args:
        name: name of the metric.
        counted: counted by its labels.
    """
    upward = {labels: tuple(itertools.accumulate(of.counts)) for labels, of in counted.items()}
    return {
        f"{name}_bucket": {
            (*labels, bound): float(count)
            for labels, counts in upward.items()
            for bound, count in zip(_BUCKETS, counts, strict=True)
        },
        f"{name}_sum": {labels: of.seconds for labels, of in counted.items()},
        f"{name}_count": {labels: float(counts[-1]) for labels, counts in upward.items()},
    }


class Exposition:
    """The text of ``/metrics``, written at each scrape.

    Whole numbers are written whole: a WAL position is compared digit by digit. Prometheus keeps
    them as floats, exact up to 2^53 (8 PiB of WAL).

    Args:
        slot: value of the label every series carries.
        take: gives ``{metric name: {label values: value}}``; label values are those of
            `Metric.series` in order, ``()`` for none. Names missing from it are not
            shown; names unknown to the table are left out.
    """

    def __init__(self, slot: str, take: Callable[[], Snapshot]) -> None:
        self._slot = slot
        self._take = take
        self._registry = CollectorRegistry()
        _OwnProcess(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def render(self) -> bytes:
        """Write one scrape in Prometheus's text format."""
        snapshot = self._take()
        lines = [line for metric in METRICS for line in self._family(metric, snapshot)]
        return "".join(f"{line}\n" for line in lines).encode() + _generate(self._registry)

    def _family(self, metric: Metric, snapshot: Snapshot) -> Iterator[str]:
        """The lines of one metric; none where the snapshot does not hold it."""
        shown = [name for name in metric.series if name in snapshot]
        if not shown:
            return
        yield f"# HELP {metric.name} {metric.help}"
        yield f"# TYPE {metric.name} {metric.kind}"
        for name in shown:
            keys = ("slot", *metric.series[name])
            order = _by_bound if keys[-1] == "le" else None
            for labels, value in sorted(snapshot[name].items(), key=order):
                pairs = sorted(zip(keys, (self._slot, *labels), strict=True))
                text = ",".join(f"{key}={label_value(label)}" for key, label in pairs)
                yield f"{name}{{{text}}} {_number(value)}"


class _OwnProcess(ProcessCollector):
    """The library's metrics of this process; it looks for the boot time where our unit hides it."""

    def _boot_time(self) -> float:
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _by_bound(item: tuple[Labels, float]) -> tuple[Labels, float]:
    """Buckets in rising order, as Prometheus wants them."""
    *labels, bound = item[0]
    return tuple(labels), float(bound)


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if float(value).is_integer() else repr(float(value))
