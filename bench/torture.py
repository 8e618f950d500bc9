"""Does the landing stay equal to the source, whatever happens to everything around it?

Episodes of about a minute, on PostgreSQL 15 and 18 in turn, with a snapshot in flight in
every second one. In an episode several sessions work, and random faults happen: processes killed and
frozen, connections cut and silent, servers restarted and crashed, slow and failing fsync, a
full disk, a clock that leaps, privileges taken and given back. One episode in three brings something
that loses changes: a slot advanced, dropped or made again, a publication dropped and made
again, a server restored to a copy of the past. That must be refused or recorded, never
passed over; then the operator's way is gone, and the landing must be equal again.

At the end of each: the log has no hole, positions rise, no row twice; every transaction of
the journal landed once (where nothing was lost by others); the landing replayed equals the tables of the
server; `gaussdecode verify` finds nothing.

    python bench/torture.py [--minutes N] [--seed N] [--only NAME] [--out FILE]
"""

import argparse
import contextlib
import dataclasses
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import corpus
import psycopg
from kit import landing, oracle
from kit.daemon import Daemon, Keeper, wait_until
from kit.hostile import Hostile
from kit.postgres import Database, Postgres
from kit.proxy import Proxy
from kit.workload import Workload
from torturefaults import FAULTS, LOSSES, PUBLISHED, Loss, Stage

from gaussdecode.errors import EX_CONFIG
from gaussdecode.model.lsn import Lsn

_MAJORS: Final = (15, 18)
_LOSS_EVERY: Final = 3
_SETTINGS: Final = {"fsync": "on", "wal_sender_timeout": "8s"}
_ROWS: Final = 20_000
_BIG_COLUMNS: Final = "(id int8 PRIMARY KEY, v text, n numeric(12,2))"
_BIG_ROWS: Final = f"""
INSERT INTO apart.big SELECT g, repeat(md5(g::text), 3), g / 7.0 FROM generate_series(1, {_ROWS}) g
"""
_CONFIG: Final[dict[str, Any]] = {
    "source": {"receiver-timeout": "6s", "retry-first": "200ms", "retry-max": "1s"},
    "decoding": {"max-txn-in-memory": 1},
    "landing": {"retention": "30d", "compact": True},
    "monitoring": {"log-level": "info"},
    "guard": {"interval": "2s"},
}
_SNAPSHOT: Final = {
    "mode": "initial", "chunk-bytes": "64KiB", "workers": 2, "rate-limit": "1MiB",
}  # fmt: skip


@dataclasses.dataclass(slots=True)
class Outcome:
    """What an episode was and how it ended.

    Attributes:
        problem: what is wrong; empty when nothing is.
    """

    number: int
    major: int
    with_snapshot: bool
    faults: list[str] = dataclasses.field(default_factory=list)
    ends: list[int] = dataclasses.field(default_factory=list)
    transactions: int = 0
    changes: int = 0
    snapshot_share: float = 0.0
    seconds: float = 0.0
    problem: str = ""


def say(text: str) -> None:
    """Print progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


class Snapshots:
    """Keeps a snapshot of the large table in flight, and its rows under change.

    Attributes:
        samples: [times looked, times one was in flight].
    """

    def __init__(self, database: Database, daemon: Daemon, rng: Random) -> None:
        self._database = database
        self._daemon = daemon
        self._rng = rng
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.samples = [0, 0]

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def finish(self) -> None:
        """End after what is under way."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(0.5):
            with contextlib.suppress(psycopg.Error, OSError):
                self._churn()
            try:
                status = self._daemon.status() or {}
            except (OSError, ValueError):
                continue  # it has just ended
            table = (status.get("snapshot") or {}).get("apart.big", {})
            self.samples[0] += 1
            is_in_flight = table.get("state") not in (None, "done", "failed")
            self.samples[1] += is_in_flight
            if status.get("state") == "streaming" and not is_in_flight:
                command(self._daemon, "snapshot", "--table", "apart.big", "--no-wait")

    def _churn(self) -> None:
        low = self._rng.randint(1, _ROWS)
        self._database.execute(
            f"UPDATE apart.big SET v = 'churned {low}' WHERE id BETWEEN {low} AND {low + 20};"
            f"DELETE FROM apart.big WHERE id BETWEEN {low + 30} AND {low + 33};"
            f"UPDATE apart.big SET id = -id WHERE id BETWEEN {low + 40} AND {low + 42};"
            f"INSERT INTO apart.big VALUES ({self._rng.randint(10**6, 10**12)}, NULL, 0.5)"
        )


def command(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the product with the daemon's configuration as its first argument."""
    split = 2 if words[0] == "slot" else 1
    arguments = [*words[:split], str(daemon.config_path), *words[split:]]
    return subprocess.run(
        [sys.executable, "-m", "gaussdecode", *arguments],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


@contextlib.contextmanager
def staged(outcome: Outcome, directory: Path, rng: Random) -> Iterator[Stage]:
    """Set a server, a workload and a daemon up, and leave nothing behind."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Postgres(outcome.major, _SETTINGS))
        database = Database(server, "torture")
        workload = Workload(database, rng.randrange(10**6))
        workload.create()
        database.execute("CREATE SCHEMA apart; CREATE TABLE apart.big " + _BIG_COLUMNS)
        database.execute(f"DROP PUBLICATION torture; CREATE PUBLICATION torture {PUBLISHED}")
        database.execute("CREATE ROLE lander LOGIN REPLICATION IN ROLE pg_read_all_data")
        if outcome.with_snapshot:  # rows from before the slot land by nothing else
            database.execute(_BIG_ROWS)
            workload.run(30)
        database.create_slot()
        if not outcome.with_snapshot:
            database.execute(_BIG_ROWS)
        proxy = stack.enter_context(Proxy(server.port))
        dsn = database.dsn.replace(f"port={server.port}", f"port={proxy.port}")
        config = {
            **_CONFIG,
            "decoding": {**_CONFIG["decoding"], "parallel-decode-num": 1 + outcome.number % 2},
        }
        if outcome.with_snapshot:
            config["snapshot"] = _SNAPSHOT
        hostile = Hostile(directory, directory / "landing")
        daemon = stack.enter_context(
            Daemon(database, directory, dsn=dsn.replace("user=postgres", "user=lander"),
                   config=config, environment=hostile.environment)
        )  # fmt: skip
        yield Stage(server, database, proxy, daemon, Keeper(daemon), hostile, workload, rng)


def run_faults(stage: Stage, outcome: Outcome, seconds: float, only: str) -> None:
    """Random faults, one after the other, with the daemon started again like a unit."""
    faults = [fault for fault in FAULTS if only in fault.__name__]
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and faults:
        stage.keep()
        time.sleep(stage.rng.uniform(0.2, 3.0))
        fault = stage.rng.choice(faults)
        outcome.faults.append(fault.__name__)
        fault(stage)
        stage.hostile.behave()
        stage.recover()


def repair(stage: Stage, loss: Loss, outcome: Outcome) -> None:
    """What was lost is refused or recorded; then go the operator's way."""
    daemon = stage.daemon
    landed = daemon.durable_lsn()
    suspects = count_suspects(daemon)
    loss.happen(stage)
    before = len(daemon.log_tail(10**6))
    target = stage.database.wal_end()

    def is_refused() -> bool:
        stage.keep()
        return EX_CONFIG in stage.keeper.ends[stage.ends_before :]

    def is_judged() -> bool:
        is_passed = loss.may_be_recorded and daemon.durable_lsn() > target
        return is_refused() or (is_passed and count_suspects(daemon) > suspects)

    wait_until(is_judged, f"{loss.name} is refused or recorded", 240)
    outcome.faults.append(f"{loss.name}: {'refused' if is_refused() else 'recorded'}")
    if is_refused():
        daemon.stop()
        refusal = daemon.log_tail(10**6)[before:]
        if loss.is_new_landing:
            begin_again(stage, landed, outcome)
        else:
            accept(daemon, loss, refusal)
        stage.keep()
        daemon.wait_for_state("streaming")
    asked = command(daemon, "snapshot", "--all")
    assert asked.returncode == 0, asked.stderr


def count_suspects(daemon: Daemon) -> int:
    """How often the log says that changes may be missing."""
    return sum(entry["kind"] == "suspect" for entry in daemon.entries())


def accept(daemon: Daemon, loss: Loss, refusal: str) -> None:
    """Go on after what is lost, with the commands that the errors name."""
    if loss.may_be_recorded:  # the slot is as it should be, but nobody can read on
        done = command(daemon, "slot", "drop", "--yes")
        assert done.returncode == 0, done.stderr
    done = command(daemon, "slot", "accept-gap", "--from-lsn", str(Lsn(daemon.durable_lsn())))
    assert done.returncode == 0, f"{done.stderr}\nafter the refusal\n{refusal[-2000:]}"
    assert any(entry["kind"] == "gap" for entry in daemon.entries()), "the gap is no entry"


def begin_again(stage: Stage, landed: int, outcome: Outcome) -> None:
    """See that the old landing is what it was, and begin another one."""
    daemon = stage.daemon
    report = command_verify(daemon)
    assert not report, f"the old landing: {report}"
    assert all(
        landing.position(entry) <= max(landed, daemon.durable_lsn()) for entry in daemon.entries()
    )
    shutil.move(daemon.root, daemon.root.with_name(f"landing-{outcome.number}-old"))
    stage.database.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    daemon.write_config(snapshot=_SNAPSHOT)
    done = command(daemon, "slot", "create")
    assert done.returncode == 0, done.stderr


def command_verify(daemon: Daemon) -> str:
    """What `gaussdecode verify` says; empty when it is content."""
    done = subprocess.run(
        [sys.executable, "-m", "gaussdecode", "verify", str(daemon.root)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return "" if done.returncode == 0 else done.stdout + done.stderr


def wait_for_snapshots(stage: Stage) -> None:
    """Until no snapshot is under way; what failed is asked for again, as its reason says."""

    def states() -> set[str]:
        stage.keep()
        status = stage.daemon.status() or {}
        return {one["state"] for one in (status.get("snapshot") or {}).values()}

    wait_until(lambda: states() <= {"done", "failed"}, "the end of all snapshots", 300)
    if "failed" in states():
        status = stage.daemon.status() or {}
        for title, one in status["snapshot"].items():
            if one["state"] == "failed":
                done = command(stage.daemon, "snapshot", "--table", title)
                assert done.returncode == 0, f"{title}: {done.stderr}"


def judge(stage: Stage, outcome: Outcome, *, is_whole: bool) -> None:
    """At rest: everything landed, equal, and verified."""
    stage.workload.finish()
    stage.resolve()
    stage.keep()
    stage.keeper.catch_up()
    wait_for_snapshots(stage)
    stage.keeper.catch_up()
    status = stage.daemon.stop()
    assert status == 0, f"stopped with {status}"
    if is_whole:
        landed = oracle.check(stage.daemon.root, stage.database, only_journal=False)
    else:
        landed = landing.read(stage.daemon.root)
        oracle.check_log(landed.entries)
        oracle.check_order(landed)
        oracle.check_tables(landed, stage.database)
    outcome.changes = len(landed.changes)
    report = command_verify(stage.daemon)
    assert not report, report


def episode(number: int, seed: int, seconds: float, only: str) -> Outcome:
    """Run one; never raises for what it finds."""
    rng = Random(f"{seed}-{number}")
    outcome = Outcome(number, _MAJORS[number % 2], with_snapshot=number // 2 % 2 == 0)
    losses = [loss for loss in LOSSES if only in loss.name]
    loss = losses[number // 3 % len(losses)] if losses and number % _LOSS_EVERY == 2 else None
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix=f"gaussdecode-torture-{number}-"))
    try:
        with staged(outcome, directory, rng) as stage:
            try:
                stage.keep()
                stage.workload.start(pause=0.1)
                snapshots = Snapshots(stage.database, stage.daemon, Random(seed))
                if outcome.with_snapshot:
                    snapshots.start()
                run_faults(stage, outcome, seconds, only)
                if outcome.with_snapshot:
                    snapshots.finish()
                    outcome.snapshot_share = snapshots.samples[1] / max(1, snapshots.samples[0])
                if loss is not None:
                    repair(stage, loss, outcome)
                judge(stage, outcome, is_whole=loss is None)
            finally:
                outcome.ends = stage.keeper.ends
                outcome.transactions = sum(len(one.committed) for one in stage.workload.workers)
                (directory / "server.log").write_bytes(stage.server.log.read_bytes())
    except Exception as error:  # noqa: BLE001 - the report holds it, and the next episode goes on
        outcome.problem = f"{error!r}\n{traceback.format_exc()}"
        (directory / "problem.txt").write_text(outcome.problem)
        say(f"episode {number}: {repr(error)[:300]}\n  kept in {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)
    outcome.seconds = time.monotonic() - began
    return outcome


def main() -> None:
    """Torture, print, and end with 1 when something was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--episode", type=float, default=40.0, help="seconds of faults in each")
    parser.add_argument("--first", type=int, default=0, help="number of the first episode")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="faults with this in their name")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # as the unit does
    began = time.monotonic()
    outcomes: list[Outcome] = []
    while time.monotonic() - began < 60 * args.minutes:
        outcome = episode(args.first + len(outcomes), args.seed, args.episode, args.only)
        outcomes.append(outcome)
        say(
            f"episode {outcome.number} on {outcome.major}"
            f"{' with snapshots' if outcome.with_snapshot else ''}: "
            f"{'FAILED' if outcome.problem else 'equal'}; {outcome.transactions} transactions, "
            f"{outcome.changes} changes, {len(outcome.faults)} faults, ends {outcome.ends}, "
            f"{outcome.seconds:.0f} s: {', '.join(outcome.faults)}"
        )
    problems = [outcome for outcome in outcomes if outcome.problem]
    corpus.write_result(
        args.out,
        {
            "bench": "torture",
            "seed": args.seed,
            "minutes": round((time.monotonic() - began) / 60, 1),
            "episodes": len(outcomes),
            "with_snapshots": sum(outcome.with_snapshot for outcome in outcomes),
            "transactions": sum(outcome.transactions for outcome in outcomes),
            "changes": sum(outcome.changes for outcome in outcomes),
            "faults": dict(Counter(name for one in outcomes for name in one.faults)),
            "ends": dict(Counter(str(end) for one in outcomes for end in one.ends)),
            "snapshot_in_flight_share": [
                round(one.snapshot_share, 2) for one in outcomes if one.with_snapshot
            ],
            "problems": [dataclasses.asdict(one) for one in problems],
            "machine": corpus.machine(),
        },
    )
    if problems:
        raise SystemExit(f"{len(problems)} of {len(outcomes)} episodes found something")


Fault = Callable[[Stage], None]

if __name__ == "__main__":
    main()
