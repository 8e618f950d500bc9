"""Make and parse the names below the landing's root.

Given the server's names. The names of files are safe in a path, distinct, and visible to Spark exactly when
they are meant to be. Touches no file.

===================================  ====================================================
``data/<table>/gd_date=D/F``         ``F`` = ``<n>-<lsn low>-<lsn high>[-k].parquet``
``compact/<block>/<table>/F``        merged files of the entries of one block
``schemas/<table>/<schema_id>.json`` content-addressed
``prepared/<lsn>-<xid>-*.prepared``  prepared transactions that have not ended
``commits/<n>.json``                 20 digits; ``.<n>.json`` until its files are in place
``.gd-<writer>-...``                 anything not finished; swept at start
===================================  ====================================================
"""

import datetime as dt
import re
from typing import Final

from gaussdecode.model import title

encode_part = title.encode_part
table_directory = title.table_directory

LAYOUT: Final = "layout.json"
LOCK: Final = ".lock"
CONTROL: Final = ".control"
"""The socket of the running daemon; no part of the landing."""
MIRROR: Final = "mirror.json"
SERVER: Final = "server.json"
SERVE: Final = "serve"
"""Virtual slots of `gaussdecode serve`; no part of the landing."""
COMMITS: Final = "commits"
CHECKPOINTS: Final = "commits/checkpoints"
SCHEMAS: Final = "schemas"
DATA: Final = "data"
COMPACT: Final = "compact"
SPOOL: Final = "spool"
PREPARED: Final = "prepared"
DIRECTORIES: Final = (COMMITS, CHECKPOINTS, SCHEMAS, DATA, COMPACT, SPOOL, PREPARED)

TRANSACTIONS: Final = "gd_transactions"
MESSAGES: Final = "gd_messages"
DDL: Final = "gd_ddl"
SYSTEM_TABLES: Final = frozenset({TRANSACTIONS, MESSAGES, DDL})
"""Tables that the source does not have."""

_ENTRY: Final = re.compile(r"([0-9]{20})\.json")
_HIDDEN_ENTRY: Final = re.compile(r"\.([0-9]{20})\.json")
_UNFINISHED: Final = re.compile(
    r"\.gd-([0-9a-z]+)-([0-9]{20})-([0-9]+)\.(parquet|entry|json|jsonl|prepared)"
)
DATA_FILE: Final = re.compile(r"([0-9]{20})-([0-9a-f]{16})-([0-9a-f]{16})(?:-([0-9]+))?\.parquet")
"""Names of committed Parquet files; they sort by the numbers of their entries."""
_DATE: Final = re.compile(r"gd_date=([0-9]{4}-[0-9]{2}-[0-9]{2})")
_PREPARED_FILE: Final = re.compile(r"[0-9a-f]{16}-[0-9]+-[0-9a-f]{12}\.prepared")
_CHECKPOINT: Final = re.compile(r"([0-9]{20})-([0-9]{20})\.jsonl")


def entry_path(n: int) -> str:
    """Path of a committed entry."""
    return f"{COMMITS}/{n:020d}.json"


def hidden_entry_path(n: int) -> str:
    """Path of an entry that is decided but not yet shown."""
    return f"{COMMITS}/.{n:020d}.json"


def entry_number(name: str) -> int | None:
    """Number of a committed entry, or None for any other name."""
    match = _ENTRY.fullmatch(name)
    return None if match is None else int(match[1])


def hidden_entry_number(name: str) -> int | None:
    """Number of a hidden entry, or None for any other name."""
    match = _HIDDEN_ENTRY.fullmatch(name)
    return None if match is None else int(match[1])


def unfinished_name(writer: str, n: int, serial: int, suffix: str) -> str:
    """Name something unfinished.

    Args:
        writer: token of this writer; lower-case letters and digits.
        n: no entry before this one can name the file.
        serial: number of the name in this writer.
        suffix: ``parquet``, ``entry``, ``json``, ``jsonl`` or ``prepared``.
    """
    return f".gd-{writer}-{n:020d}-{serial}.{suffix}"


def unfinished_number(name: str) -> int | None:
    """Number before which no entry names this file, or None if it is not of our pattern."""
    match = _UNFINISHED.fullmatch(name)
    return None if match is None else int(match[2])


def data_name(n: int, low_lsn: int, high_lsn: int, k: int) -> str:
    """Name a committed Parquet file; `k` counts the files of one table in one entry."""
    suffix = f"-{k}" if k else ""
    return f"{n:020d}-{low_lsn:016x}-{high_lsn:016x}{suffix}.parquet"


def data_number(name: str) -> int | None:
    """Number of the entry a committed Parquet file belongs to, or None."""
    match = DATA_FILE.fullmatch(name)
    return None if match is None else int(match[1])


def data_directory(table: str, date: dt.date) -> str:
    """Directory of the files of a table that are committed on a day (UTC)."""
    return f"{DATA}/{table}/gd_date={date.isoformat()}"


def partition_date(name: str) -> dt.date | None:
    """Day of a partition directory, or None for any other name."""
    match = _DATE.fullmatch(name)
    try:
        return None if match is None else dt.date.fromisoformat(match[1])
    except ValueError:  # no such day
        return None


def compact_directory(block: int, table: str) -> str:
    """Directory of the merged files of a table for the block that begins at `block`."""
    return f"{COMPACT}/{block:020d}/{table}"


def prepared_name(lsn: int, xid: int, token: str) -> str:
    """Name the file of a prepared transaction; `token` tells it from one of an earlier process."""
    return f"{lsn:016x}-{xid}-{token}.prepared"


def is_prepared_name(name: str) -> bool:
    """Whether a name is that of a prepared transaction's file."""
    return _PREPARED_FILE.fullmatch(name) is not None


def checkpoint_range(name: str) -> tuple[int, int] | None:
    """First and last entry number of a checkpoint, or None for any other name."""
    match = _CHECKPOINT.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))


def parent(path: str) -> str:
    """Directory of a path; the root is the empty string."""
    return path.rpartition("/")[0]
