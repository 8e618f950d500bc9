"""How fast rows that are there already land, beside COPY to a file and pg_dump.

All three read the same table of the same server, one after the other; the daemon reads with
``workers`` connections, the others with one. Peak memory is that of the daemon's main process.

    python bench/snapshot.py --rows 2000000 --workers 2
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kit.daemon import Daemon
from kit.postgres import Database, Postgres


def peak_bytes(pid: int) -> int:
    """Peak resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def measure_daemon(
    database: Database, rows: int, workers: int, directory: Path
) -> dict[str, float]:
    """Land the table."""
    database.create_slot()
    config: dict[str, dict[str, object]] = {
        "snapshot": {"mode": "initial", "workers": workers, "chunk-bytes": "32MiB"},
        "landing": {"row-group-rows": 131072, "row-group-bytes": "64MiB", "memory-bytes": "512MiB",
                    "target-file-size": "128MiB"},
        "monitoring": {"log-level": "warning"},
    }  # fmt: skip
    oldest = 0.0
    with Daemon(database, directory, config=config) as daemon:
        daemon.wait_for_state("streaming")
        began = time.monotonic()
        while (daemon.status() or {}).get("snapshot", {}).get("public.t", {}).get(
            "state"
        ) != "done":
            found = database.execute(
                "SELECT coalesce(max(extract(epoch FROM now() - xact_start)), 0)::float8 "
                "FROM pg_stat_activity WHERE application_name = 'gaussdecode'"
            )
            oldest = max(oldest, float(str(found[0][0])))
            time.sleep(0.2)
        seconds = time.monotonic() - began
        peak = peak_bytes(daemon.pid)
        entry = next(e for e in daemon.entries() if e["kind"] == "snapshot")
        landed = sum(file["rows"] for file in entry["files"])
        assert landed == rows, f"{landed} rows landed, not {rows}"
        daemon.stop()
    return {"seconds": seconds, "peak_bytes": peak, "oldest_transaction_seconds": oldest}


def main() -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    rows = arguments.rows
    with Postgres(15) as server, tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        database = Database(server, "bench")
        database.execute(
            "CREATE TABLE t (id int8 PRIMARY KEY, a int4, b text, n numeric(12,2), t timestamptz);"
            f"INSERT INTO t SELECT g, g % 1000, 'row ' || g, g / 7.0, now() "
            f"FROM generate_series(1, {rows}) g; VACUUM ANALYZE t".replace("; VACUUM ANALYZE t", "")
        )
        database.execute("VACUUM ANALYZE t")
        text = directory / "copy.txt"
        results: dict[str, dict[str, float]] = {}
        for tool, command in (
            ("copy", [str(server.program("psql")), database.dsn, "-qc", f"\\copy t TO '{text}'"]),
            ("pg_dump", [str(server.program("pg_dump")), database.dsn, "-t", "t", "-f", str(directory / "dump.sql")]),
        ):  # fmt: skip
            began = time.monotonic()
            subprocess.run(command, check=True)
            results[tool] = {"seconds": time.monotonic() - began}
        size = text.stat().st_size
        results["gaussdecode"] = measure_daemon(database, rows, arguments.workers, directory)
        for result in results.values():
            result["rows_per_second"] = rows / result["seconds"]
            result["megabytes_per_second"] = size / result["seconds"] / 1e6
        print(json.dumps({"rows": rows, "copy_bytes": size, **results}, indent=1))
        database.drop()


if __name__ == "__main__":
    main()
