"""What a metric is, and the names of one in a reading."""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Final

Labels = tuple[str, ...]
_NOTHING: Final = "Nothing by itself; it is the base of rates."


class Kind(enum.StrEnum):
    """Prometheus's types that we use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclasses.dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: name as Prometheus shows it.
        kind: counter, gauge or histogram.
        unit: unit of the value; ``bool`` for 0 and 1.
        help: meaning, one sentence without a full stop.
        action: advice when it moves.
        labels: besides ``slot``, in the order of the snapshot's label tuples.
    """

    name: str
    kind: Kind
    unit: str
    help: str
    action: str
    labels: Labels = ()

    @property
    def series(self) -> Mapping[str, Labels]:
        """Names under which a snapshot holds its values, and the labels of each."""
        if self.kind is not Kind.HISTOGRAM:
            return {self.name: self.labels}
        return {
            f"{self.name}_bucket": (*self.labels, "le"),
            f"{self.name}_sum": self.labels,
            f"{self.name}_count": self.labels,
        }


def counter(
    name: str, unit: str, help_text: str, action: str = _NOTHING, labels: Labels = ()
) -> Metric:
    """Declare a counter."""
    return Metric(f"gaussdecode_{name}_total", Kind.COUNTER, unit, help_text, action, labels)


def gauge(
    name: str, unit: str, help_text: str, action: str = _NOTHING, labels: Labels = ()
) -> Metric:
    """Declare a gauge."""
    return Metric(f"gaussdecode_{name}", Kind.GAUGE, unit, help_text, action, labels)


def histogram(name: str, help_text: str, action: str = _NOTHING, labels: Labels = ()) -> Metric:
    """Declare a histogram of seconds."""
    return Metric(
        f"gaussdecode_{name}_seconds", Kind.HISTOGRAM, "seconds", help_text, action, labels
    )
