"""`gaussdecode spark verify` as the judge of a soak."""

import contextlib
import io
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kit.daemon import Daemon

from gaussdecode.cli import main

_QUOTED: Final = re.compile(r"[\d/]+|\"[^\"]*\"")


def verify(
    daemon: Daemon, target: Path, tables: Sequence[str] = (), *, is_local: bool = True
) -> Counter[str]:
    """Compare a target with the server; gives how many tables there are by how it went.

    Raises:
        AssertionError: they differ.
    """
    arguments = ["spark", "verify", str(daemon.root), str(target), "--allow-insecure", "--json"]
    dsn = f"{daemon.database.dsn} sslmode=disable"
    arguments += ["--local"] if is_local else []
    arguments += ["--tables", ",".join(tables)] if tables else []
    said, failed = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(failed):
        main([*arguments, "--dsn", dsn])
    assert said.getvalue(), failed.getvalue()
    compared = json.loads(said.getvalue())["tables"]
    differ = [of for of in compared if of["different_ranges"]]
    assert not differ, differ
    return Counter("equal" if of["why_not"] is None else reason(of["why_not"]) for of in compared)


def reason(text: str) -> str:
    """A reason without what differs from table to table."""
    return _QUOTED.sub("…", text)
