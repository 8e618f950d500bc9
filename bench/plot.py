"""Draw the curves of results for the documentation.

    python bench/plot.py RESULTS DIRECTORY

RESULTS is the directory that `make bench` fills; what is not there is not drawn. Needs
matplotlib, which the extra ``bench`` brings. Lines are medians, bars reach from the lowest
to the highest run.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import pacing
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_AXES: Final = {
    "bytes": ("recorded_bytes", "bytes of stream"),
    "tables": ("tables", "tables"),
    "columns": ("columns", "columns"),
    "transaction": ("rows_per_transaction", "rows per transaction"),
}
_SHAPES: Final = ("narrow", "wide", "changes", "small")
_LIVE: Final = {
    "pg_recvlogical": "pg_recvlogical, writes nothing",
    "empty_loop": "empty libpq loop",
    "daemon": "gaussdecode, durable Parquet",
}
_COST: Final = (  # what is drawn one upon the other
    {"marginal_seconds_per_gb": "gaussdecode, durable Parquet, one core"},
    {"spread_out_seconds_per_gb": "gaussdecode, durable Parquet, all cores"},
    {
        "csv_seconds_per_gb": "pyarrow: the same values from CSV",
        "parquet_seconds_per_gb": "pyarrow: the same tables to Parquet",
    },
)
_DOTS: Final = 80

Result = dict[str, Any]  # Any: JSON


def _error(spread: dict[str, float]) -> list[list[float]]:
    """Lengths of a bar below and above the median."""
    return [[spread["median"] - spread["min"]], [spread["max"] - spread["median"]]]


def _bar(panel: Axes, x: float, spread: dict[str, float], width: float, **style: Any) -> None:
    panel.bar(x, spread["median"], width, yerr=_error(spread), capsize=3, **style)


def draw_scale(results: dict[str, Result]) -> Figure:
    """Throughput and memory over each thing that grows."""
    curves: dict[str, list[Result]] = {}
    for name in ("scale", "scale-large"):  # the large one has a longer curve of bytes
        curves |= results.get(name, {}).get("curves", {})
    figure, panels = plt.subplots(
        2, len(curves), figsize=(3.5 * len(curves), 6), sharey="row", squeeze=False
    )
    for column, (curve, points) in enumerate(curves.items()):
        key, label = _AXES[curve]
        x = [point[key] for point in points]
        panels[0][column].plot(x, [point["mb_per_second"] for point in points], "o-")
        for process in points[0]["peak_memory"]:
            memory = [point["peak_memory"].get(process, 0) / 1e6 for point in points]
            panels[1][column].plot(x, memory, "o-", label=process)
        for panel in (panels[0][column], panels[1][column]):
            panel.set_xscale("log")
            panel.grid(alpha=0.3)
        panels[1][column].set_xlabel(label)
    for row in panels:
        row[0].set_ylim(bottom=0)  # last: it ends the scaling to what is drawn
    panels[1][0].legend()
    panels[0][0].set_ylabel("MB/s of stream to durable Parquet")
    panels[1][0].set_ylabel("peak memory, MB")
    return figure


def draw_latency(results: dict[str, Result]) -> Figure:
    """From commit to visible, by tables, for each interval."""
    curve = results["latency"]["curve"]
    intervals = sorted({point["interval_ms"] for point in curve})
    figure, panels = plt.subplots(1, len(intervals), figsize=(5 * len(intervals), 4), squeeze=False)
    for panel, interval in zip(panels[0], intervals, strict=True):
        points = [point for point in curve if point["interval_ms"] == interval]
        x = [point["tables"] for point in points]
        for name in ("p50_ms", "p99_ms"):
            panel.plot(x, [point[name] for point in points], "o-", label=name.removesuffix("_ms"))
        panel.axhline(interval, linestyle="--", color="grey", label="max-commit-interval")
        panel.set_xscale("log")
        panel.set_ylim(bottom=0)
        panel.set_xlabel("active tables")
        panel.set_ylabel("ms from commit to visible")
        panel.grid(alpha=0.3)
        panel.legend()
    return figure


def draw_live(results: dict[str, Result]) -> Figure:
    """Rows per second of the contenders, and what a row costs, by shape."""
    shapes = [shape for shape in _SHAPES if f"live-{shape}" in results]
    figure, (rates, costs) = plt.subplots(1, 2, figsize=(11, 4))
    for x, shape in enumerate(shapes):
        result = results[f"live-{shape}"]
        for index, (name, label) in enumerate(_LIVE.items()):
            style = {"color": f"C{index}", "label": label if x == 0 else None}
            spread = result[f"{name}_rows_per_second"]
            _bar(rates, x + 0.27 * (index - 1), spread, 0.25, **style)
        spent = result["cpu_seconds_per_million_rows"]
        bottom = 0.0
        for index, name in enumerate(("empty_loop", "reader", "main")):
            own = spent[name]["median"]
            at = x - 0.2 if name == "empty_loop" else x + 0.2
            start = 0.0 if name == "empty_loop" else bottom
            costs.bar(at, own, 0.35, start, color=f"C{index + 1}", label=name if x == 0 else None)
            bottom = 0.0 if name == "empty_loop" else start + own
    for panel in (rates, costs):
        panel.set_xticks(range(len(shapes)), shapes)
        panel.grid(alpha=0.3, axis="y")
        panel.legend()
    rates.set_ylabel("rows/s")
    costs.set_ylabel("CPU seconds per million rows")
    return figure


def draw_replay(results: dict[str, Result]) -> Figure:
    """MB/s on one core and on two, with Parquet and with a null sink."""
    shapes = [shape for shape in _SHAPES if f"replay-{shape}" in results]
    figure, panels = plt.subplots(
        1, len(shapes), figsize=(5 * len(shapes), 4), squeeze=False, sharey=True
    )
    for panel, shape in zip(panels[0], shapes, strict=True):
        result = results[f"replay-{shape}"]
        kinds = [key.removesuffix("_cores_1") for key in result if key.endswith("_cores_1")]
        for x, kind in enumerate(kinds):
            for cores in (1, 2):
                spread = result[f"{kind}_cores_{cores}"]["mb_per_second"]
                label = f"{cores} core{'s' * (cores > 1)}" if x == 0 else None
                _bar(panel, x + 0.4 * (cores - 1.5), spread, 0.35, color=f"C{cores}", label=label)
        names = [kind.replace("null_", "null sink,\n").replace("_", " ") for kind in kinds]
        panel.set_xticks(range(len(kinds)), names, fontsize=8)
        panel.set_title(shape)
        panel.grid(alpha=0.3, axis="y")
    panels[0][0].set_ylabel("MB/s of recording")
    panels[0][0].legend()
    return figure


def draw_gaussdb(results: dict[str, Result]) -> Figure:
    """MB/s by decoders, also over TLS, and the cost of a byte by columns."""
    result = results["gaussdb"]
    figure, (rates, costs) = plt.subplots(1, 2, figsize=(11, 4))
    bars = {key: result[key] for key in result if key.startswith("decoders_")}
    bars |= {f"{key}, TLS": found for key, found in result["tls"].items() if "decoders_" in key}
    for x, found in enumerate(bars.values()):
        _bar(rates, x, found["wire_mb_per_second"], 0.6)
    rates.set_xticks(range(len(bars)), [name.replace("_", " ") for name in bars], fontsize=8)
    rates.set_ylabel("MB/s of wire to durable Parquet")
    points = result["columns_curve"]
    (name,) = (key for key in points[0] if key.startswith("decoders_"))
    spreads = [point[name]["cpu_seconds_per_gb"] for point in points]
    low, high = zip(*((low[0], high[0]) for low, high in map(_error, spreads)), strict=True)
    medians = [spread["median"] for spread in spreads]
    costs.errorbar([p["columns"] for p in points], medians, [low, high], fmt="o-", capsize=3)
    costs.set_ylim(bottom=0)
    costs.set_xlabel("columns")
    costs.set_ylabel("CPU seconds per GB of wire")
    for panel in (rates, costs):
        panel.grid(alpha=0.3, axis="y")
    return figure


def draw_pacing(results: dict[str, Result]) -> Figure:
    """What each way of pacing reads gives in each place, and what it costs the loop and the server."""
    result = results["pacing"]
    places = {name: result[name] for name in pacing.PLACES if name in result}
    figure, panels = plt.subplots(2, len(places), figsize=(4.5 * len(places), 7), squeeze=False)
    for column, (place, found) in enumerate(places.items()):
        paces = found["paces"]
        rates, costs = panels[0][column], panels[1][column]
        for x, (name, spreads) in enumerate(paces.items()):
            ours = name == pacing.AUTO
            _bar(rates, x, spreads["rows_per_second"], 0.7, color="C1" if ours else "C0")
            below = 0.0
            for key, color in (
                ("walsender_cpu_seconds_per_million_rows", "C3"),
                ("cpu_seconds_per_million_rows", "C1" if ours else "C0"),
            ):
                height = spreads[key]["median"]
                costs.bar(x, height, 0.7, bottom=below, color=color)
                below += height
        base = found["pg_recvlogical_rows_per_second"]["median"]
        rates.axhline(base, linestyle="--", color="grey", label="pg_recvlogical")
        rates.legend()
        rates.set_title(place)
        for panel, label in ((rates, "rows/s"), (costs, "CPU s per M rows: walsender, loop")):
            panel.set_xticks(range(len(paces)), paces, rotation=60, ha="right", fontsize=7)
            panel.set_ylabel(label)
            panel.grid(alpha=0.3, axis="y")
    return figure


def draw_cost(results: dict[str, Result]) -> Figure:
    """CPU seconds of one more GB, beside the same values from CSV to Parquet."""
    found = results["cost"]["scenarios"]
    colors = {key: f"C{index}" for index, key in enumerate(key for stack in _COST for key in stack)}
    figure, panel = plt.subplots(figsize=(9, 4))
    for x, result in enumerate(found.values()):
        for place, stack in enumerate(_COST):
            bottom = 0.0
            for key, label in stack.items():
                style = {"label": label if x == 0 else None, "color": colors[key]}
                _bar(panel, x + 0.27 * (place - 1), result[key], 0.25, bottom=bottom, **style)
                bottom += result[key]["median"]
    panel.set_xticks(range(len(found)), found)
    panel.set_ylabel("CPU seconds per GB of stream")
    panel.grid(axis="y", alpha=0.3)
    panel.legend()
    return figure


_DRAWINGS: Final[dict[str, Callable[[dict[str, Result]], Figure]]] = {
    "live": draw_live,
    "pacing": draw_pacing,
    "replay": draw_replay,
    "gaussdb": draw_gaussdb,
    "cost": draw_cost,
    "latency": draw_latency,
    "scale": draw_scale,
}


def main() -> None:
    """Draw what there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("directory", type=Path)
    args = parser.parse_args()
    results = {path.stem: json.loads(path.read_text()) for path in args.results.glob("*.json")}
    args.directory.mkdir(exist_ok=True)
    for name, draw in _DRAWINGS.items():
        if not any(found.get("bench") == name for found in results.values()):
            continue
        figure = draw(results)
        figure.tight_layout()
        path = args.directory / f"bench-{name}.png"
        figure.savefig(path, dpi=_DOTS)
        plt.close(figure)
        print(path)


if __name__ == "__main__":
    main()
