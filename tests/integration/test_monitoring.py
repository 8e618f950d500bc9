"""What a running daemon shows: metrics, status, probes and its log."""

import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from kit.daemon import Daemon
from kit.postgres import Database

from gaussdecode.cli import main
from gaussdecode.demo.ports import free_port
from gaussdecode.logs import Event
from gaussdecode.metrics.metric import Kind
from gaussdecode.metrics.serve import SERVE
from gaussdecode.metrics.table import BY_NAME
from gaussdecode.model.lsn import Lsn

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
SOMETIMES = {
    "gaussdecode_source_invalidation_seconds",
    "gaussdecode_land_full_seconds",
    "gaussdecode_source_oldest_transaction_seconds",
    "gaussdecode_source_oldest_prepared_seconds",
    # Of a landing of several sources, or in the order of CSNs: see test_gauss_sources_status.
    "gaussdecode_source_member_lag_bytes",
    "gaussdecode_source_member_lag_seconds",
    "gaussdecode_collect_watermark_csn",
    "gaussdecode_collect_turn_waiting_transactions",
    "gaussdecode_collect_turn_held_seconds",
    # Of a GaussDB that sends heartbeats: see test_gauss_heartbeats.
    "gaussdecode_source_heartbeat_lsn",
    "gaussdecode_source_heartbeat_flushed_lsn",
    "gaussdecode_source_heartbeat_timestamp_seconds",
    # With retention: see test_housekeeping.
    "gaussdecode_land_virtual_slot_held_bytes",
    "gaussdecode_land_virtual_slot_limit_bytes",
    # With serve.in-daemon: see test_alerts.
    "gaussdecode_daemon_serve_up",
    # Of the port of gaussdecode serve: see test_lags.
    *(metric.name for metric in SERVE),
}


@pytest.fixture
def busy(database_15: Database, make_daemon: MakeDaemon, tmp_path: Path) -> Daemon:
    """A parallel daemon with a mirror that has landed something; its fixture ends it."""
    database_15.execute("CREATE TABLE public.t (id int4 PRIMARY KEY, v text)")
    database_15.create_slot()
    # The file is not there, so nobody knows when the certificate ends.
    dsn = f"{database_15.dsn} sslmode=disable sslcert={tmp_path}/client.pem"
    daemon = make_daemon(database_15, dsn=dsn, config={
        "decoding": {"parallel-decode-num": 2},
        "landing": {"mirror": {"url": f"file://{tmp_path}/mirror"}},
    })  # fmt: skip
    daemon.start()
    database_15.execute("INSERT INTO public.t SELECT i, 'secret value' FROM generate_series(1,9) i")
    daemon.catch_up()
    return daemon


def test_every_metric_of_the_table_is_shown(busy: Daemon) -> None:
    """Nothing in the table is empty talk, nothing shown is missing from it, promtool agrees."""
    status, page = busy.get("/metrics")
    assert status == 200
    shown = set(re.findall(r"^(gaussdecode_\w+)\{", page.decode(), re.MULTILINE))
    # Restarts are counted by class of error, and there was none; the slot has no limit; and
    # what does not shrink has no end to be told.
    missing = set(BY_NAME) - shown - SOMETIMES
    assert missing == {"gaussdecode_daemon_restarts_total", "gaussdecode_source_safe_wal_bytes"}
    assert shown <= set(BY_NAME)
    promtool = shutil.which("promtool")
    assert promtool is not None, "promtool is missing: apt-get install prometheus"
    done = subprocess.run(
        [promtool, "check", "metrics"], input=page, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_the_lag_outlasts_a_restart_without_a_server(
    busy: Daemon, database_15: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is at least the age of a commit in between; what nobody can know is not told as 0."""
    busy.wait_while_running(lambda: busy.record()["lag_seconds"] == 0.0, "no lag")
    assert busy.stop() == 0
    database_15.execute("INSERT INTO public.t VALUES (10, 'x')")
    committed = time.time()
    dsn = database_15.dsn
    away = re.sub(r"port=\d+", f"port={free_port()}", dsn)
    assert away != dsn
    busy.write_config(source={"dsn": f"{away} sslmode=disable"})
    busy.start()
    busy.wait_for_state("retrying")
    asked = time.time()
    record = busy.record()
    assert record["lag_seconds"] >= asked - committed
    assert record["server_seen_seconds"] >= asked - committed
    assert record["server_wal_end"] is not None, "the last that was seen"
    assert (record["reader_lsn"], record["confirmed_lsn"]) == (None, None)
    # A record of the server's own may have come after the last commit: what is known of it is told.
    behind = Lsn.parse(record["server_wal_end"]) - busy.durable_lsn()
    assert record["lag_bytes"] == (behind if behind > 0 else None)
    assert b"gaussdecode_source_lag_bytes{slot" in (page := busy.get("/metrics")[1])
    told = b"NaN" if behind <= 0 else b"%d" % behind
    assert re.search(rb"gaussdecode_source_lag_bytes\{.*\} %s(\.0)?\n" % told, page)
    assert busy.get("/")[0] == 200
    assert main(["status", str(busy.config_path)]) == 69
    assert ("| -         |" if behind <= 0 else f"| {behind} B ") in capsys.readouterr().out
    assert busy.stop() == 0
    busy.write_config(source={"dsn": f"{dsn} sslmode=disable"})
    busy.start()
    busy.catch_up()
    busy.wait_while_running(lambda: busy.record()["lag_seconds"] == 0.0, "no lag")


@pytest.mark.parametrize("name", ["reader", "decoder 1"])
def test_a_stopped_process_is_named(busy: Daemon, database_15: Database, name: str) -> None:
    """With its number and what lets it go on, as a problem and as the limit; no decoders are advised."""
    pid = busy.record()["children"][name]
    os.kill(pid, signal.SIGSTOP)
    try:
        busy.wait_while_running(lambda: not busy.record()["is_ready"], "a problem")
        record = busy.record()
        (trouble,) = (of for of in record["causes"] if of["name"] == "process-stopped")
        assert trouble["what"].startswith(f"The {name} (process {pid}) is stopped")
        assert f"`kill -CONT {pid}`" in trouble["action"]
        assert record["limit"]["setting"] == f"kill -CONT {pid}"
        assert record["limit"]["stage"] == ("receive" if name == "reader" else "decode")
    finally:
        os.kill(pid, signal.SIGCONT)
    busy.wait_while_running(lambda: bool(busy.record()["is_ready"]), "no problem")
    database_15.execute("INSERT INTO public.t VALUES (10, 'x')")
    busy.catch_up()


def counters(daemon: Daemon) -> dict[str, float]:
    """Every series that may not fall, as it is written."""
    _, page = daemon.get("/metrics")
    lines = re.findall(r"^((gaussdecode_\w+)\{.*\}) (\S+)$", page.decode(), re.MULTILINE)
    return {
        series: float(value)
        for series, name, value in lines
        if BY_NAME[name].kind is not Kind.GAUGE
    }


def test_counters_go_on_when_the_connection_breaks(busy: Daemon, database_15: Database) -> None:
    """None falls or is missing; as many latencies are counted as transactions have landed."""
    latency = 'gaussdecode_land_commit_to_durable_seconds_bucket{le="%s",slot="%s"}'

    def is_counted() -> bool:
        landed = pq.read_table(busy.root / "data" / "gd_transactions").num_rows
        found = counters(busy)
        return all(found[latency % (le, database_15.slot)] == landed for le in ("3600", "+Inf"))

    assert is_counted()
    seen = [counters(busy)]
    database_15.execute("INSERT INTO public.t VALUES (10, 'x')")
    busy.catch_up()
    seen.append(counters(busy))
    database_15.execute(
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
        f"WHERE slot_name = '{database_15.slot}'"
    )
    sessions = f'gaussdecode_daemon_sessions_total{{slot="{database_15.slot}"}}'
    while seen[-1][sessions] < 2:
        seen.append(counters(busy))
    database_15.execute("INSERT INTO public.t VALUES (11, 'x')")
    busy.catch_up()
    seen.append(counters(busy))
    for before, after in itertools.pairwise(seen):
        assert {series for series in before if after.get(series, -1.0) < before[series]} == set()
    assert is_counted()
    batches = {
        seen[-1][
            f'gaussdecode_daemon_stage_seconds_count{{slot="{database_15.slot}",stage="{of}"}}'
        ]
        for of in ("receive", "decode", "collect")
    }
    assert batches == {
        seen[-1][f'gaussdecode_source_dispatched_batches_total{{slot="{database_15.slot}"}}']
    }


def test_both_queues_are_shown_per_decoder(busy: Daemon) -> None:
    """As the server shows them in gs_get_parallel_decode_status()."""
    page = busy.get("/metrics")[1].decode()
    for name in ("read_change_queue_length", "decode_change_queue_length"):
        for decoder in range(2):
            labels = f'{{decoder="{decoder}",slot="{busy.database.slot}"}}'
            assert f"gaussdecode_{name}{labels} " in page


def test_status_command(busy: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints what the daemon says."""
    assert main(["status", "--json", str(busy.config_path)]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["slot_name"] == busy.database.slot
    assert record["parallel_decode_num"] == 2
    assert re.fullmatch(r"queue0: \d+, queue1: \d+", record["read_change_queue_length"])
    assert re.fullmatch(r"queue0: \d+, queue1: \d+", record["decode_change_queue_length"])
    assert record["state"] == "streaming"
    assert busy.get("/livez")[0] == busy.get("/readyz")[0] == 200


def test_log_is_json_with_known_events_and_no_values(busy: Daemon) -> None:
    """One object per line; names come from one list; rows stay out of it."""
    assert busy.stop() == 0
    text = busy.log.read_text()
    records = [json.loads(line) for line in text.splitlines()]
    assert {record["event"] for record in records} <= set(Event)
    assert {Event.DAEMON_STARTED, Event.BATCH_LANDED, Event.DAEMON_STOPPED} <= {
        record["event"] for record in records
    }
    assert all(record["slot"] == busy.database.slot for record in records)
    assert "secret value" not in text


def test_systemd_is_told(database_15: Database, make_daemon: MakeDaemon, tmp_path: Path) -> None:
    """Ready when the landing is recovered, the watchdog is fed, and the end is announced."""
    database_15.execute("CREATE TABLE public.t (id int4)")
    database_15.create_slot()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(tmp_path / "notify"))
    listener.settimeout(60)
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "3000000"}
    received = b""
    with make_daemon(database_15, environment=environment) as daemon:
        while b"READY=1" not in received or received.count(b"WATCHDOG=1") < 2:
            received += listener.recv(1000) + b"\n"
        assert daemon.stop() == 0
    while b"STOPPING=1" not in received:
        received += listener.recv(1000) + b"\n"
    listener.close()


def test_a_taken_port_stops_the_start(database_15: Database, make_daemon: MakeDaemon) -> None:
    """The message names the key, and the status says configuration."""
    database_15.create_slot()
    daemon = make_daemon(database_15)
    with socket.create_server(("127.0.0.1", daemon.port)):
        daemon.start()
        assert daemon.wait() == 78
    assert f"monitoring.listen: 127.0.0.1:{daemon.port}" in daemon.log.read_text()
