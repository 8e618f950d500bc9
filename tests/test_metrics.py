"""Tests for `gaussdecode.metrics`."""

import re
import shutil
import subprocess

import pytest

from gaussdecode.metrics.exposition import Exposition, Snapshot, histogram_values
from gaussdecode.metrics.metric import Kind, Metric
from gaussdecode.metrics.table import BY_NAME, METRICS
from gaussdecode.model.histogram import BOUNDS, Counted

COUNTED = Counted(tuple(range(len(BOUNDS) + 1)), 12.5)
LABELS = {
    "decoder",
    "certificate",
    "stage",
    "reason",
    "version",
    "process",
    "source",
    "pace",
    "virtual_slot",
}
STAGES = {"source", "decode", "collect", "land", "daemon", "serve"}
SERVER_NAMES = {
    f"{queue}_change_queue_{what}"
    for queue in ("read", "decode")
    for what in ("length", "entries", "bytes")
}


def full_snapshot() -> Snapshot:
    """One series of every metric."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for index, metric in enumerate(METRICS):
        labels = tuple("0" for _ in metric.labels)
        if metric.kind is Kind.HISTOGRAM:
            found |= histogram_values(metric.name, {labels: COUNTED})
        else:
            found[metric.name] = {labels: float(index)}
    return found


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_rule(metric: Metric) -> None:
    """gaussdecode_<stage>_<what>_<unit>[_total], but for the two of the server."""
    match = re.fullmatch(r"gaussdecode_([a-z]+)_[a-z_]*[a-z]", metric.name)
    assert match is not None
    bare = metric.name.removeprefix("gaussdecode_")
    assert match[1] in STAGES or bare in SERVER_NAMES
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_units_are_base_units(metric: Metric) -> None:
    """Bytes and seconds stand in the name; no other scale of them exists."""
    name = metric.name.removesuffix("_total")
    for unit in ("bytes", "seconds", "lsn"):
        assert name.endswith(f"_{unit}") == (metric.unit == unit)
    assert not re.search(r"_(ms|us|ns|kb|mb|mib|percent|minutes)(_|$)", metric.name)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_row_helps(metric: Metric) -> None:
    """Labels come from the fixed set; help and action are there."""
    assert set(metric.labels) <= LABELS
    assert not metric.help.endswith(".")
    assert metric.action.endswith(".")


def test_names_are_unique() -> None:
    """No name stands twice."""
    assert len(BY_NAME) == sum(len(metric.series) for metric in METRICS)


def test_every_series_carries_the_slot() -> None:
    """The label is added by the collector, next to the metric's own."""
    text = Exposition("orders", full_snapshot).render().decode()
    for metric in METRICS:
        for name in metric.series:
            line = next(line for line in text.splitlines() if line.startswith(name + "{"))
            assert 'slot="orders"' in line
            assert all(f'{label}="0"' in line for label in metric.labels)


def test_a_histogram_counts_upward() -> None:
    """Each bucket holds those below it, in rising order; the last is the number of all."""
    name = "gaussdecode_land_commit_to_durable_seconds"
    values = histogram_values(name, {(): COUNTED})
    text = Exposition("orders", lambda: values).render().decode()
    assert f"# TYPE {name} histogram\n" in text
    found = re.findall(rf'{name}_bucket{{le="([^"]+)",slot="orders"}} (\d+)\n', text)
    total = sum(COUNTED.counts)
    assert [float(bound) for bound, _ in found] == [*BOUNDS, float("inf")]
    assert [int(count) for _, count in found] == [
        sum(range(index + 1)) for index in range(len(BOUNDS) + 1)
    ]
    assert f'{name}_sum{{slot="orders"}} 12.5\n{name}_count{{slot="orders"}} {total}\n' in text


def test_an_absent_metric_is_not_shown() -> None:
    """What is not known is left out rather than shown as zero."""
    text = Exposition("orders", lambda: {"gaussdecode_land_entry": {(): 7.0}}).render().decode()
    assert 'gaussdecode_land_entry{slot="orders"} 7\n' in text
    assert "gaussdecode_source" not in text


def test_positions_are_written_whole() -> None:
    """No exponent: what is compared with the server's own figure has all of its digits."""
    values: Snapshot = {
        "gaussdecode_land_durable_lsn": {(): float(0x16_B374_D848)},
        "gaussdecode_source_lag_seconds": {(): 0.25},
    }
    text = Exposition("orders", lambda: values).render().decode()
    assert f'gaussdecode_land_durable_lsn{{slot="orders"}} {0x16_B374_D848}\n' in text
    assert 'gaussdecode_source_lag_seconds{slot="orders"} 0.25\n' in text


def test_labels_cannot_break_out_of_their_line() -> None:
    """Quotes, backslashes and line ends are escaped."""
    values: Snapshot = {"gaussdecode_daemon_info": {('a"\\\n',): 1.0}}
    text = Exposition("orders", lambda: values).render().decode()
    assert r'version="a\"\\\n"} 1' in text


def test_promtool_finds_nothing() -> None:
    """Prometheus's own linter accepts the whole exposition."""
    promtool = shutil.which("promtool")
    assert promtool is not None, "promtool is missing: apt-get install prometheus"
    text = Exposition("orders", full_snapshot).render()
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")
