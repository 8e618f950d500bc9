"""Draw the curves of `scale.py` and `latency.py` for the documentation.

    python bench/plot.py RESULTS DIRECTORY

RESULTS is the directory that `make bench` fills; needs matplotlib.
"""

import argparse
import json
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

_AXES: Final = {
    "bytes": ("recorded_bytes", "bytes of stream"),
    "tables": ("tables", "tables"),
    "columns": ("columns", "columns"),
    "transaction": ("rows_per_transaction", "rows per transaction"),
}
_DOTS: Final = 110


def draw_scale(result: dict[str, Any], path: Path) -> None:
    """Throughput and memory over each thing that grows."""
    figure, panels = plt.subplots(2, len(_AXES), figsize=(14, 6), sharey="row")
    for column, (curve, (key, label)) in enumerate(_AXES.items()):
        points = result["curves"][curve]
        x = [point[key] for point in points]
        memory = [sum(point["peak_memory"].values()) / 1e6 for point in points]
        panels[0][column].plot(x, [point["mb_per_second"] for point in points], "o-")
        panels[1][column].plot(x, memory, "o-", color="tab:red")
        for panel in (panels[0][column], panels[1][column]):
            panel.set_xscale("log")
            panel.grid(alpha=0.3)
        panels[1][column].set_xlabel(label)
    for row in panels:
        row[0].set_ylim(bottom=0)  # last: it ends the scaling to what is drawn
    panels[0][0].set_ylabel("MB/s of stream to durable Parquet")
    panels[1][0].set_ylabel("peak memory of all processes, MB")
    figure.tight_layout()
    figure.savefig(path, dpi=_DOTS)
    plt.close(figure)


def draw_latency(result: dict[str, Any], path: Path) -> None:
    """From commit to visible, by tables, for each interval."""
    intervals = sorted({point["interval_ms"] for point in result["curve"]})
    figure, panels = plt.subplots(1, len(intervals), figsize=(5 * len(intervals), 4))
    for panel, interval in zip([panels] if len(intervals) == 1 else panels, intervals, strict=True):
        points = [point for point in result["curve"] if point["interval_ms"] == interval]
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
    figure.tight_layout()
    figure.savefig(path, dpi=_DOTS)
    plt.close(figure)


def main() -> None:
    """Draw what there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("directory", type=Path)
    args = parser.parse_args()
    for name, draw in (("scale", draw_scale), ("latency", draw_latency)):
        found = args.results / f"{name}.json"
        if found.exists():
            path = args.directory / f"{name}.png"
            draw(json.loads(found.read_text()), path)
            print(path)


if __name__ == "__main__":
    main()
