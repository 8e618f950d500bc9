"""A real Prometheus scrapes a real daemon; every expression is evaluated there."""

import contextlib
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.daemon import Daemon, wait_until
from kit.postgres import Database, Postgres
from kit.prometheus import Prometheus
from kit.rules import hurried, installed

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "config/grafana/gaussdecode.json").read_text())
# Shown only while something shrinks; seen once is enough.
SOMETIMES = ("gaussdecode_source_invalidation_seconds", "gaussdecode_land_full_seconds")
# Shown only while a transaction is open or prepared.
TRANSACTIONS = (
    "gaussdecode_source_oldest_transaction_seconds",
    "gaussdecode_source_oldest_prepared_seconds",
)
# Of a landing of several sources, or in the order of CSNs.
SOURCES = (
    "gaussdecode_source_member_lag_",
    "gaussdecode_collect_watermark_csn",
    "gaussdecode_collect_turn_",
)
# Of `gaussdecode serve`, which test_alerts.py has running.
SERVED = (
    "gaussdecode_serve_behind_",
    "gaussdecode_land_virtual_slot_",
    "gaussdecode_daemon_serve_up",
)
QUANTILES = [
    f"histogram_quantile(0.95, sum by (stage, le) (rate(gaussdecode_{name}_seconds_bucket[1m])))"
    for name in ("land_commit_to_durable", "daemon_stage")
]
MIB = 2**20


def expressions() -> Iterator[str]:
    """Of the dashboard, with its variables filled in; of the rules, as truth of both kinds."""
    panels = [p for panel in DASHBOARD["panels"] for p in (panel, *panel.get("panels", ()))]
    for panel in panels:
        for target in panel.get("targets", ()):
            text = target["expr"].replace("$slot", ".+").replace("$instance", ".+")
            yield text.replace("$__rate_interval", "1m")
    for rule in installed():
        yield re.sub(r" (==|!=|<|>) ", r" \1 bool ", rule["expr"])


@pytest.fixture
def limited() -> Iterator[Database]:
    """A database on a server that keeps little WAL for a slot."""
    with Postgres(15, {"max_slot_wal_keep_size": "96MB"}) as server:
        yield Database(server, "limited")


@contextlib.contextmanager
def trouble(database: Database, daemon: Daemon, ballast: Path) -> Iterator[Callable[[], None]]:
    """Give a step that brings the slot and the disk nearer to their ends."""

    def step() -> None:
        database.execute(f"SELECT pg_logical_emit_message(false, 'other', repeat('x', {MIB}))")
        with ballast.open("ab") as file:
            file.write(bytes(16 * MIB))
        assert daemon.is_running

    with database.connect() as writer:
        writer.autocommit = False
        writer.execute("INSERT INTO public.t VALUES (-1)")  # open: the slot must keep its WAL
        yield step


def test_every_expression_returns_series(
    limited: Database, make_daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    """What alerts and panels ask for is there; what is near its end fires; what is well does not."""
    limited.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    limited.create_slot()
    dsn = f"{limited.dsn} sslmode=disable sslcert={tmp_path}/client.pem"  # not there
    daemon = make_daemon(limited, dsn=dsn, config={
        "guard": {"interval": "1s"}, "landing": {"mirror": {"url": f"file://{tmp_path}/mirror"}},
    }).start()  # fmt: skip
    daemon.wait_for_state("streaming")
    # A session that breaks off, so that restarts are counted by their reason.
    limited.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")
    limited.execute("INSERT INTO public.t VALUES (1)")
    with Prometheus(tmp_path, [daemon.port], hurried(lambda _: 0.0)) as prometheus:
        with trouble(limited, daemon, tmp_path / "ballast") as step:
            for _ in range(30):
                step()  # a third of the allowance is gone

            def all_seen() -> bool:
                step()
                return all(prometheus.query(f"last_over_time({name}[10m])") for name in SOMETIMES)

            wait_until(all_seen, "slot and disk come nearer to their ends")
        (tmp_path / "ballast").unlink()
        wait_until(
            lambda: bool(prometheus.query("rate(gaussdecode_daemon_restarts_total[1m])")),
            "two scrapes",
        )

        def has_quantiles() -> bool:
            limited.execute("INSERT INTO public.t SELECT max(id) + 1 FROM public.t")
            return not any(
                math.isnan(float(item["value"][1]))
                for text in QUANTILES
                for item in prometheus.query(text) or [{"value": (0, "nan")}]
            )

        wait_until(has_quantiles, "every stage has a quantile of its durations")
        for text in expressions():
            found = prometheus.query(text)
            absent = (*SOMETIMES, *TRANSACTIONS, *SOURCES, *SERVED)
            assert found or any(name in text for name in absent), text
            if "gaussdecode_" in text and found:
                series = {item["metric"].get("slot") for item in found}
                assert series == {limited.slot}, text
        seen = prometheus.query("max_over_time(ALERTS{alertstate='firing'}[10m])")
        names = {item["metric"]["alertname"] for item in seen}
        assert "GaussdecodeSlotNearInvalidation" in names
        assert not names & {"GaussdecodeDown", "GaussdecodeGap", "GaussdecodeDiskFull"}
        assert daemon.stop() == 0
        wait_until(lambda: "GaussdecodeDown" in prometheus.firing(), "the daemon's end is noticed")
