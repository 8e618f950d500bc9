"""Draw results for the documentation.

    python bench/plot.py RESULTS DIRECTORY

RESULTS is the directory that `make bench` fills; what is not there is not drawn. Needs
matplotlib, which the extra ``bench`` brings. Bars are medians, with lines from the lowest to
the highest run.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
    "cost": draw_cost,
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
