"""Does it go on for long, under load, with faults, and does somebody notice?

A server takes a seeded load from several sessions, the daemon lands it under a supervisor
that does what systemd does with our unit file (restarts by exit status, watchdog), and one
fault after the other happens: processes killed and frozen, connections cut, the server
crashed, the disk filled, the configuration changed. A real Prometheus scrapes and
evaluates the installed rules. Those that wait (`for:`) for five minutes and more are quicker:
what they wait for and how far they look back is multiplied by `--patience`, so that they
have the time to fire. The others, and all bounds, are as installed.

At the end, at rest: the commit log has no hole and no position twice, every transaction of
the journal landed once and whole, the landing replayed is what the tables of the server
hold, `gaussdecode verify` finds nothing, and `gaussdecode spark verify` finds a target that was
brought up to the landing equal to them. An alert without a fault that explains it fails
the soak, and so does a supervisor that had to give up.

    python bench/soak.py [--minutes N] [--seed N] [--pause S] [--only NAME] [--out FILE]
"""

import argparse
import contextlib
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import corpus
from kit import oracle
from kit.daemon import Daemon, wait_until
from kit.postgres import Database, Postgres
from kit.prometheus import Prometheus
from kit.proxy import Proxy
from kit.rules import paced
from kit.systemd import Supervised, Unit
from kit.workload import prepare
from soakfaults import FAULTS, Fault, Stage, own_disk
from soakload import Load
from soakreport import Happened, MemoryWatch, Report
from sparkverify import verify as spark_verify

from gaussdecode.cli import main as command
from gaussdecode.errors import EX_CONFIG, EX_OK
from gaussdecode.land.verify import verify

_SETTINGS: Final = {"fsync": "on", "wal_sender_timeout": "10s", "max_slot_wal_keep_size": "8GB"}
_CONFIG: Final[dict[str, Any]] = {
    "source": {"receiver-timeout": "10s", "retry-max": "2s"},
    "decoding": {"parallel-decode-num": 2, "max-txn-in-memory": 1},
    "landing": {"max-commit-interval": "5s"},
    "guard": {"interval": "5s"},
    "monitoring": {"log-level": "info"},
}
_QUICK: Final = 60.0  # seconds of patience that stay as they are
_LONG: Final = 300.0  # the next longer patience
_SAY_SECONDS: Final = 20.0


def say(text: str) -> None:
    """Print progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def say_state(stage: Stage) -> None:
    """One line about how it is."""
    status = stage.daemon.status() or {}
    say(
        f"  {status.get('state', 'no answer')}, lag {(status.get('lag_bytes') or 0) / 1e3:.0f} kB "
        f"{status.get('lag_seconds') or 0:.0f} s, entry {status.get('entry', '-')}, "
        f"{stage.load.transactions} transactions"
    )


def wait_saying(stage: Stage, until: float) -> None:
    """Wait, and say now and then how it is."""
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(_SAY_SECONDS, left))
        say_state(stage)


def run_faults(stage: Stage, faults: Sequence[Fault], minutes: float) -> list[Happened]:
    """Let the faults happen, spread evenly over the time; then wait for its end."""
    began = time.monotonic()
    end = began + 60 * minutes
    happened = []
    for done, fault in enumerate(faults):
        # What is left of the time is shared by what is left of the faults, and a rest.
        pause = max(5.0, (end - time.monotonic()) / (len(faults) - done + 1) * 0.7)
        wait_saying(stage, time.monotonic() + pause)
        stage.wait_for_stream()
        say(f"{(time.monotonic() - began) / 60:.1f} min: {fault.name}")
        at = time.time()
        fault.happen(stage)
        happened.append(Happened(fault, at, time.time()))
        stage.wait_for_stream()
        say_state(stage)
    wait_saying(stage, end)
    return happened


@contextlib.contextmanager
def staged(args: argparse.Namespace, directory: Path) -> Iterator[Stage]:
    """Set everything up, and leave nothing behind."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Postgres(corpus.MAJOR, _SETTINGS))
        database = Database(server, "soak")
        workload = prepare(database, args.seed)
        load = Load(database, workload, args.seed, args.pause, args.bulk)
        proxy = stack.enter_context(Proxy(server.port))
        dsn = database.dsn.replace(f"port={server.port}", f"port={proxy.port}")
        daemon = Daemon(database, directory, dsn=dsn, config=_CONFIG)
        disk = stack.enter_context(own_disk(daemon.root))
        supervised = stack.enter_context(Supervised(daemon, directory, Unit.read()))
        hold = _LONG * args.patience * 1.5
        rng = Random(args.seed)
        yield Stage(server, proxy, daemon, supervised, load, rng, hold, disk)


def wait_until_landed(stage: Stage) -> dict[str, Any]:
    """At rest: land the rest, stop, and judge what landed."""
    stage.load.finish()
    target = stage.daemon.database.wal_end()
    stage.daemon.mark()
    wait_until(lambda: stage.daemon.durable_lsn() > target, "landing the rest", 300)
    say("bringing a target up to the landing, and comparing it with the source")
    lake = stage.daemon.root.parent / "target"
    applied = command(["spark", "apply", str(stage.daemon.root), str(lake), "--local"])
    assert applied in {EX_OK, EX_CONFIG}, "EX_CONFIG: tables stand still, which are counted"
    verified = spark_verify(stage.daemon, lake)
    status = stage.supervised.stop()
    assert status == 0, f"stopped with status {status}"
    say("replaying the landing, and comparing it with the source")
    landed = oracle.check(stage.daemon.root, stage.daemon.database)
    say("verifying the landing")
    report = verify(stage.daemon.root)
    assert report.is_clean, report.findings
    return {
        "transactions": len(landed.transactions),
        "changes": len(landed.changes),
        "messages": len(landed.messages),
        "entries": len(landed.entries),
        "files": report.files,
        "tables_equal_the_source": True,
        "positions_twice": 0,
        "verify_findings": len(report.findings),
        "spark_verify": dict(verified),
    }


def soak(args: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Run everything; give the result."""
    rules = paced(args.patience, _QUICK)
    with staged(args, directory) as stage:
        faults = [
            fault
            for fault in FAULTS
            if args.only is None or any(part in fault.name for part in args.only)
        ]
        if stage.disk is None:
            say("no file system can be mounted here: the disk does not fill up")
            faults = [fault for fault in faults if fault.name != "the disk is full"]
        ports = [stage.daemon.port]
        with Prometheus(directory, ports, rules, interval="5s") as prometheus:
            memory = MemoryWatch(stage.daemon)
            memory.start()
            stage.wait_for_stream()
            began = time.time()
            stage.load.start()
            happened = run_faults(stage, faults, args.minutes)
            ended = time.time()
            memory.is_over.set()
            report = Report(prometheus, began, ended)
            result = {
                "bench": "soak",
                "minutes": round((ended - began) / 60, 1),
                "seed": args.seed,
                "patience": args.patience,
                "server": corpus.MAJOR,
                "load_transactions": stage.load.transactions,
                "large_transactions": stage.load.bulk.count,
                "faults": [
                    {"at_minutes": round((one.began - began) / 60, 1), "what": one.fault.name}
                    for one in happened
                ],
                "ends": [
                    {
                        "at_minutes": round((end.at - began) / 60, 1),
                        "status": end.status,
                        "watchdog": end.is_watchdog,
                        "started_again": end.is_started_again,
                    }
                    for end in stage.supervised.ends
                ],
                "streams_broken_off": stage.daemon.log.read_text().count('"session_retrying"'),
                "figures": report.figures(),
                "memory": memory.report(),
                "alerts": report.alerts(happened),
            }
        result["landed"] = wait_until_landed(stage)
        return {**result, "machine": corpus.machine()}


def main() -> None:
    """Soak and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.4, help="of each session, seconds")
    parser.add_argument("--bulk", type=float, default=60.0, help="between large ones, seconds")
    parser.add_argument("--patience", type=float, default=0.1, help="of alerts of 5 min and more")
    parser.add_argument("--only", action="append", help="faults with this in their name")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # as the unit does
    with tempfile.TemporaryDirectory(prefix="gaussdecode-soak-") as name:
        result = soak(args, Path(name))
    corpus.write_result(args.out, result)
    unexplained = result["alerts"]["unexplained"]
    if unexplained:
        raise SystemExit(f"alerts without a fault: {', '.join(unexplained)}")


if __name__ == "__main__":
    main()
