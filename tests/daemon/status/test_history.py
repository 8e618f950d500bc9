"""Tests for `gaussdecode.daemon.status.history`."""

import math
import sys

from gaussdecode.daemon.status.history import (
    INTERVAL_SECONDS,
    LENGTH,
    History,
    Sample,
    Values,
    series,
)


def test_memory_is_bounded() -> None:
    """However long it runs, the oldest samples go, and the whole stays below a megabyte."""
    history = History()
    for number in range(3 * LENGTH):
        history.add(Sample(float(number), land_rows_total=float(number)))
    samples = history.samples()
    assert (len(samples), samples[-1].at) == (LENGTH, 3 * LENGTH - 1)
    numbers = 24 * len(Sample.__slots__)
    assert LENGTH * (sys.getsizeof(samples[0]) + numbers) < 1 << 20


def test_a_sample_sums_labels() -> None:
    """Series of several decoders become one number; what is not shown is 0."""
    values: Values = {"gaussdecode_decode_rows_total": {("0",): 3.0, ("1",): 4.0}}
    sample = Sample.of(9.0, values)
    assert (sample.at, sample.decode_rows_total, sample.land_rows_total) == (9.0, 7.0, 0.0)


def test_a_sample_is_due_after_the_interval() -> None:
    """The first at once, the next not before the interval is over."""
    history = History()
    assert history.is_due(100.0)
    history.add(Sample(100.0))
    assert not history.is_due(100.0 + INTERVAL_SECONDS / 2)
    assert history.is_due(100.0 + INTERVAL_SECONDS)


def test_rates_are_per_second_over_the_window() -> None:
    """Counters become rates over the window, gauges keep their newest value."""
    history = History()
    for at in range(10):
        history.add(Sample(float(at), land_rows_total=100.0 * at, source_lag_bytes=float(at)))
    rates = history.rates(4.0)
    assert rates is not None
    assert (rates.at, rates.land_rows_total, rates.source_lag_bytes) == (4.0, 100.0, 9.0)


def test_rates_need_two_samples() -> None:
    """One reading says nothing of speed; two far apart do."""
    history = History()
    history.add(Sample(0.0))
    too_early = history.rates(30.0)
    history.add(Sample(100.0, land_rows_total=50.0))
    rates = history.rates(30.0)
    assert too_early is None
    assert rates is not None
    assert rates.land_rows_total == 0.5


def test_series_are_thinned_out() -> None:
    """At most so many points, the newest among them, counters as rates."""
    samples = [
        Sample(float(at), land_rows_total=3.0 * at, source_lag_bytes=float(at)) for at in range(900)
    ]
    gauges = series(samples, "source_lag_bytes", 200)
    assert len(gauges) <= 200
    assert gauges[-1] == (0.0, 899.0)
    rates = series(samples, "land_rows_total", 200)
    assert {value for _, value in rates} == {3.0}
    nothing = series([], "source_lag_bytes", 200)
    assert not nothing


def test_a_rate_over_time_ends_at_the_rate_of_now() -> None:
    """Both are of the same seconds: after a burst the line falls, and does not rise again at its end."""
    history = History()
    for at in range(0, 200, 2):
        history.add(Sample(float(at), land_rows_total=3000.0 * (at > 180)))
    rates = history.rates(30.0)
    assert rates is not None
    (*_, (ago, last)) = points = series(history.samples(), "land_rows_total", 200, 30.0)
    assert (ago, last) == (0.0, rates.land_rows_total)
    assert max(value for _, value in points) == last == 100.0


def test_missing_samples_are_a_gap() -> None:
    """Of gauges and counters alike: nobody draws a line over the time of which nothing is known."""
    times = [*range(0, 20, 2), *range(60, 80, 2)]
    samples = [
        Sample(float(at), land_rows_total=3.0 * at, source_lag_bytes=float(at)) for at in times
    ]
    for name, known in (("source_lag_bytes", 20), ("land_rows_total", 18)):
        points = series(samples, name, 200)
        assert [ago for ago, value in points if math.isnan(value)] == [39.0]
        assert len(points) == known + 1
    assert {value for _, value in points if not math.isnan(value)} == {3.0}
