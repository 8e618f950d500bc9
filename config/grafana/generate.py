"""Writes gaussdecode.json, the dashboard for Grafana 10.1 or newer, from the table below.

``python config/grafana/generate.py`` writes it; ``--check`` ends with 1 when it is out of
date. Import the JSON in Grafana and choose the Prometheus data source. The first row shows
what GaussDB's gs_get_parallel_decode_status() shows of the server's own decoding.
"""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders import bargauge, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BarGaugeDisplayMode,
    BigValueTextMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    VariableRefresh,
)

PAGE: Final = Path(__file__).with_name("gaussdecode.json")
_SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
_PLACE: Final = '{slot=~"$slot",instance=~"$instance"}'
_HEIGHT: Final = 7


@dataclasses.dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        kind: ``stat``, ``bars`` (a gauge per series) or ``lines``.
        title: of the panel.
        unit: Grafana's name of it.
        span: columns of 24.
        series: expression and legend; ``@`` stands for the selection of slot and instance.
        help: shown behind the panel's (i).
    """

    kind: str
    title: str
    unit: str
    span: int
    series: Sequence[tuple[str, str]]
    help: str = ""


def _rate(metric: str) -> str:
    return f"rate(gaussdecode_{metric}@[$__rate_interval])"


def _quantile(share: float, metric: str, *labels: str) -> str:
    by = ", ".join(("slot", *labels, "le"))
    return f"histogram_quantile({share}, sum by ({by}) ({_rate(f'{metric}_bucket')}))"


_DECODER: Final = "{{slot}} decoder {{decoder}}"
_SLOT: Final = "{{slot}}"

ROWS: Final[Sequence[tuple[str, Sequence[Panel]]]] = (
    (
        "Parallel decoding, as gs_get_parallel_decode_status() shows it",
        (
            Panel("bars", "read change queue length", "short", 7,
                  [("gaussdecode_read_change_queue_length@", _DECODER)],
                  "Batches that wait to be decoded. Full: the decoders limit, or what follows."),
            Panel("bars", "decode change queue length", "short", 7,
                  [("gaussdecode_decode_change_queue_length@", _DECODER)],
                  "Decoded batches that wait for the collector. Full: landing is the limit."),
            Panel("stat", "parallel_decode_num", "short", 2,
                  [("count without (decoder) (gaussdecode_read_change_queue_length@)", _SLOT)]),
            Panel("stat", "reader LSN", "none", 3, [("gaussdecode_source_received_lsn@", _SLOT)],
                  "In bytes from the start of the WAL; `gaussdecode status` spells it as the server."),
            Panel("stat", "working transactions", "short", 2,
                  [("gaussdecode_collect_open_transactions@", _SLOT)]),
            Panel("stat", "their memory", "bytes", 3, [("gaussdecode_collect_open_bytes@", _SLOT)]),
        ),
    ),
    (
        "Lag",
        (
            Panel("stat", "streaming", "bool_yes_no", 3, [("gaussdecode_source_connected@", _SLOT)]),
            Panel("stat", "limit", "string", 5, [("gaussdecode_daemon_limit@ == 1", "{{slot}}: {{stage}}")],
                  "The stage that limits the throughput now; the status page says what moves it."),
            Panel("lines", "lag", "bytes", 8, [("gaussdecode_source_lag_bytes@", _SLOT)]),
            Panel("lines", "lag in time", "s", 8, [("gaussdecode_source_lag_seconds@", _SLOT)]),
        ),
    ),
    (
        "How long it takes",
        (
            Panel("lines", "from commit to durable", "s", 12, [
                (_quantile(share, "land_commit_to_durable_seconds"), f"{{{{slot}}}} {share * 100:g} %")
                for share in (0.5, 0.95, 0.99)
            ], "Of all transactions so many percent were durable within this time of their commit, by the clocks of "
               "source and daemon. Near max-commit-interval is usual; what has not landed is not in it: see lag."),
            Panel("lines", "stages, 95 %", "s", 12, [
                (_quantile(0.95, "daemon_stage_seconds", "stage"), "{{slot}} {{stage}}"),
            ], "A batch in receive, decode and collect, an entry in gather and publish, a row group in encode, a file "
               "in sync; docs/metrics.md says what to do when one rises."),
        ),
    ),
    (
        "Throughput per stage",
        (
            Panel("lines", "received", "Bps", 8, [(_rate("source_received_bytes_total"), _SLOT)]),
            Panel("lines", "rows", "rowsps", 8, [
                (f"sum without (decoder) ({_rate('decode_rows_total')})", "{{slot}} decoded"),
                (_rate("collect_rows_total"), "{{slot}} released"),
                (_rate("land_rows_total"), "{{slot}} landed"),
            ]),
            Panel("lines", "transactions", "ops", 8, [(_rate("collect_transactions_total"), _SLOT)]),
        ),
    ),
    (
        "What each stage does and waits for",
        (
            Panel("lines", "works", "percentunit", 12, [
                (_rate("source_busy_seconds_total"), "{{slot}} reader"),
                (_rate("decode_busy_seconds_total"), _DECODER),
                (_rate("collect_busy_seconds_total"), "{{slot}} collector"),
                (_rate("land_encoded_seconds_total"), "{{slot}} writer lanes, summed"),
                (_rate("land_published_seconds_total"), "{{slot}} committer"),
            ]),
            Panel("lines", "waits for room in what follows", "percentunit", 6, [
                (_rate("source_stalled_seconds_total"), "{{slot}} reader"),
                (_rate("decode_waited_output_seconds_total"), _DECODER),
                (_rate("collect_blocked_seconds_total"), "{{slot}} collector"),
            ], "The stage after the last one that waits is the limit."),
            Panel("lines", "waits for input", "percentunit", 6, [
                (_rate("source_waited_seconds_total"), "{{slot}} reader, for the server"),
                (_rate("decode_waited_input_seconds_total"), _DECODER),
                (_rate("collect_waited_seconds_total"), "{{slot}} collector"),
            ]),
        ),
    ),
    (
        "Landing",
        (
            Panel("lines", "files and entries per minute", "short", 8, [
                (f"60 * {_rate('land_files_total')}", "{{slot}} files"),
                (f"60 * {_rate('land_entries_total')}", "{{slot}} entries"),
            ]),
            Panel("lines", "written", "Bps", 8, [(_rate("land_bytes_total"), _SLOT)]),
            Panel("lines", "free on the disk", "bytes", 8, [("gaussdecode_land_free_bytes@", _SLOT)]),
        ),
    ),
    (
        "Memory and spool",
        (
            Panel("lines", "memory", "bytes", 8, [
                ("gaussdecode_collect_open_bytes@", "{{slot}} open transactions"),
                ("gaussdecode_collect_pending_bytes@", "{{slot}} not yet landed"),
                ("gaussdecode_daemon_memory_budget_bytes@", "{{slot}} bound of all buffers"),
            ]),
            Panel("lines", "spooled to disk", "bytes", 6, [
                ("gaussdecode_collect_spooled_bytes@", _SLOT),
            ]),
            Panel("lines", "transaction too large", "bool_yes_no", 4, [
                ("gaussdecode_collect_spool_full@", _SLOT),
            ]),
            Panel("lines", "spooled transactions per minute", "short", 6, [
                (f"60 * {_rate('collect_spooled_transactions_total')}", _SLOT),
            ]),
        ),
    ),
    (
        "Processes",
        (
            Panel("lines", "resident memory", "bytes", 12, [
                ("gaussdecode_daemon_resident_bytes@", "{{slot}} {{process}}"),
            ], "The shared queues count in each process that uses them."),
            Panel("lines", "CPU", "percentunit", 12, [
                (_rate("daemon_cpu_seconds_total"), "{{slot}} {{process}}"),
            ], "1 is one core. A reader or decoder near it is the limit."),
        ),
    ),
    (
        "The slot on the server",
        (
            Panel("lines", "WAL kept, and left until it may be lost", "bytes", 8, [
                ("gaussdecode_source_retained_wal_bytes@", "{{slot}} kept"),
                ("gaussdecode_source_safe_wal_bytes@", "{{slot}} left"),
            ]),
            Panel("lines", "time left", "s", 6, [
                ("gaussdecode_source_invalidation_seconds@", "{{slot}} until the slot may be lost"),
                ("gaussdecode_land_full_seconds@", "{{slot}} until the disk is full"),
            ], "Empty while neither is coming nearer."),
            Panel("lines", "spilled by the server while decoding", "Bps", 6, [
                (_rate("source_server_spilled_bytes_total"), _SLOT),
            ], "Raise logical_decoding_work_mem on the server."),
            Panel("stat", "slot lost", "bool_yes_no", 2, [("gaussdecode_source_slot_lost@", _SLOT)]),
            Panel("stat", "guard", "short", 2, [("gaussdecode_daemon_guard_step@", _SLOT)],
                  "0 calm, 1 warn, 2 pause optional work, 3 drop the slot"),
            Panel("lines", "transactions not frozen", "short", 12, [
                ("gaussdecode_source_catalog_xmin_age_transactions@", "{{slot}} kept by the slot"),
                ("gaussdecode_source_frozen_age_transactions@", "{{slot}} oldest of the server"),
            ], "At 2.1 billion the server stops writing. Not on GaussDB."),
            Panel("lines", "oldest transaction on the server", "s", 12, [
                ("gaussdecode_source_oldest_transaction_seconds@", "{{slot}} open"),
                ("gaussdecode_source_oldest_prepared_seconds@", "{{slot}} prepared"),
            ], "It holds WAL back for the slot. Empty for none, and where the role may not see it."),
        ),
    ),
    (
        "Sources, of several or in the order of CSNs",
        (
            Panel("lines", "lag", "bytes", 8, [
                ("gaussdecode_source_member_lag_bytes@", "{{slot}} {{source}}"),
            ]),
            Panel("lines", "the mark waits for", "s", 8, [
                ("gaussdecode_collect_turn_held_seconds@", "{{slot}} {{source}}"),
            ], "While one is above 0 for long, nothing lands of any: status says for what."),
            Panel("lines", "transactions that wait for their turn", "short", 8, [
                ("gaussdecode_collect_turn_waiting_transactions@", "{{slot}} {{source}}"),
            ]),
        ),
    ),
    (
        "Trouble",
        (
            Panel("lines", "values that did not fit, per hour", "short", 6, [
                ("sum without (decoder) (increase(gaussdecode_decode_misfit_values_total@[1h]))", _SLOT),
            ]),
            Panel("lines", "gaps, suspects, tables in quarantine, failed snapshots", "short", 6, [
                ("gaussdecode_land_gap_entries_total@", "{{slot}} gaps"),
                ("gaussdecode_land_suspect_entries_total@", "{{slot}} suspect"),
                ("gaussdecode_land_quarantined_tables@", "{{slot}} in quarantine"),
                ("gaussdecode_land_snapshot_failed_tables@", "{{slot}} snapshots failed"),
            ]),
            Panel("lines", "sessions per hour", "short", 6, [
                ("increase(gaussdecode_daemon_sessions_total@[1h])", _SLOT),
            ]),
            Panel("lines", "disk full", "bool_yes_no", 6, [("gaussdecode_land_disk_full@", _SLOT)]),
        ),
    ),
    (
        "Existing rows",
        (
            Panel("lines", "tables that wait, and that failed", "short", 6, [
                ("gaussdecode_land_snapshot_pending_tables@", "{{slot}} wait"),
                ("gaussdecode_land_snapshot_failed_tables@", "{{slot}} failed"),
            ]),
            Panel("lines", "chunks of the tables being read", "short", 6, [
                ("gaussdecode_land_snapshot_chunks@", "{{slot}} all"),
                ("gaussdecode_land_snapshot_chunks_done@", "{{slot}} finished"),
            ]),
            Panel("lines", "read", "Bps", 6, [(_rate("land_snapshot_bytes_total"), _SLOT)]),
            Panel("lines", "left", "s", 6, [("gaussdecode_land_snapshot_left_seconds@", _SLOT)]),
        ),
    ),
    (
        "Mirror",
        (
            Panel("stat", "mirror works", "bool_yes_no", 3, [("gaussdecode_land_mirror_up@", _SLOT)],
                  "Empty without landing.mirror."),
            Panel("lines", "waits for the mirror", "s", 6, [
                ("gaussdecode_land_mirror_backlog_seconds@", "{{slot}} oldest entry"),
            ], "With confirm: mirror the server keeps WAL for as long."),
            Panel("lines", "bytes that wait for the mirror", "bytes", 5, [
                ("gaussdecode_land_mirror_backlog_bytes@", _SLOT),
            ]),
            Panel("lines", "shipped", "Bps", 5, [(_rate("land_mirror_shipped_bytes_total"), _SLOT)]),
            Panel("lines", "requests that failed, per hour", "short", 5, [
                ("increase(gaussdecode_land_mirror_errors_total@[1h])", _SLOT),
            ]),
        ),
    ),
)  # fmt: skip

_BUILDERS: Final = {"stat": stat.Panel, "bars": bargauge.Panel, "lines": timeseries.Panel}


def build_panel(panel: Panel) -> stat.Panel | bargauge.Panel | timeseries.Panel:
    """Make one panel."""
    built = _BUILDERS[panel.kind]().title(panel.title).unit(panel.unit).datasource(_SOURCE)
    built = built.span(panel.span).height(_HEIGHT)
    if panel.help:
        built = built.description(panel.help)
    if isinstance(built, bargauge.Panel):
        built = built.display_mode(BarGaugeDisplayMode.BASIC)
        built = built.orientation(VizOrientation.HORIZONTAL).min(0)
    elif isinstance(built, timeseries.Panel):
        built = built.min(0).fill_opacity(8)
    if isinstance(built, stat.Panel) and panel.unit == "string":
        built = built.text_mode(BigValueTextMode.NAME)
    for index, (expression, legend) in enumerate(panel.series):
        query = prometheus.Dataquery().expr(expression.replace("@", _PLACE)).legend_format(legend)
        query = query.ref_id(chr(ord("A") + index))
        built = built.with_target(query if panel.kind == "lines" else query.instant())
    return built


def build() -> str:
    """Make the whole dashboard."""
    board = (
        dashboard.Dashboard("gaussdecode")
        .uid("gaussdecode")
        .tags(["gaussdecode"])
        .refresh("15s")
        .time("now-1h", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )  # fmt: skip
    for name in ("slot", "instance"):
        labels = f"label_values(gaussdecode_source_connected, {name})"
        variable = dashboard.QueryVariable(name).label(name.capitalize()).datasource(_SOURCE)
        variable = variable.query(labels).multi(multi=True).include_all(include_all=True)
        board = board.with_variable(variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED))
    for title, panels in ROWS:
        board = board.with_row(dashboard.Row(title))
        for panel in panels:
            board = board.with_panel(build_panel(panel))
    model = json.loads(JSONEncoder().encode(board.build()))
    return json.dumps(model, indent=2, sort_keys=True) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write or check the dashboard."""
    text = build()
    if "--check" in arguments:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{PAGE.name} is out of date; run: python config/grafana/generate.py")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
