"""A real process on a real file system, killed by the failpoints it was started with."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kit.landrun import Landing, check_invariants, landed_rows, transaction_lsn

from gaussdecode.land.failpoints import VARIABLE, Operation, Step
from gaussdecode.land.files import Files

pytestmark = pytest.mark.crash

PROGRAM = """
import sys
from pathlib import Path
from gaussdecode.land.files import Files
from kit.landrun import Landing
landing = Landing(Files(Path(sys.argv[1])), "killed", with_retention=sys.argv[2] == "retention",
                  with_prepared=sys.argv[3] == "prepared")
landing.on_confirm = lambda lsn: print(lsn, flush=True)
landing.run()
"""

POINTS = [
    *(f"{step}:2=kill" for step in Step),
    *(
        f"{op}:{count}=kill"
        for op in (Operation.SYNC_DIRECTORY, Operation.WRITE)
        for count in (9, 21)
    ),
    f"{Operation.RENAME}:7=exit",
    f"{Operation.UNLINK}:5=exit",
]


@pytest.mark.parametrize("point", POINTS)
def test_killed_process_lands_exactly_once(point: str, tmp_path: Path) -> None:
    """Killed at a failpoint, the landing is completed by the next process."""
    with_retention = point.startswith(("floor", "files_deleted"))
    with_prepared = point.startswith(("prepared", "entry_linked"))
    package = Path(__file__).parents[2]
    environment = {
        **os.environ,
        VARIABLE: point if not with_retention else point.replace(":2", ":1"),
        "PYTHONPATH": os.pathsep.join([str(package), str(package / "tests")]),
    }
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            PROGRAM,
            str(tmp_path),
            "retention" if with_retention else "plain",
            "prepared" if with_prepared else "plain",
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode in (-signal.SIGKILL, os.EX_SOFTWARE), ended.stderr
    again = Landing(
        Files(tmp_path), "second", with_retention=with_retention, with_prepared=with_prepared
    )
    again.open().close()
    confirmed = {int(line) for line in ended.stdout.split()} - {
        transaction_lsn(0),
        transaction_lsn(3),
    }
    reader = Files(tmp_path)
    if not with_retention:
        assert confirmed <= {lsn for lsn, _, _ in landed_rows(reader)}
    Landing(
        Files(tmp_path), "third", with_retention=with_retention, with_prepared=with_prepared
    ).run()
    check_invariants(reader, again.transactions, with_retention=with_retention)
    reader.close()
