"""All metrics."""

from collections.abc import Mapping
from typing import Final

from gaussdecode.metrics.collect import COLLECT
from gaussdecode.metrics.daemon import DAEMON
from gaussdecode.metrics.decode import DECODE
from gaussdecode.metrics.land import LAND
from gaussdecode.metrics.metric import Metric
from gaussdecode.metrics.queues import QUEUES
from gaussdecode.metrics.serve import SERVE
from gaussdecode.metrics.snapshot import SNAPSHOT
from gaussdecode.metrics.source import SOURCE

METRICS: Final[tuple[Metric, ...]] = (
    *QUEUES,
    *SOURCE,
    *DECODE,
    *COLLECT,
    *LAND,
    *SNAPSHOT,
    *DAEMON,
    *SERVE,
)
BY_NAME: Final[Mapping[str, Metric]] = {
    name: metric for metric in METRICS for name in metric.series
}
"""Metrics by the names in a reading."""
