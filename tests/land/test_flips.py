"""One byte of anything that a start reads is changed: it is noticed, or it changed nothing.

The landing is a real one of the simulated disk, with checkpoints, schemas, a merged block,
retention after it, and a snapshot under way. `verify` has to notice each change, also where
a start does not need the byte.
"""

import dataclasses
import random
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pytest
from kit.landrun import Landing
from kit.simdisk import Image, SimFiles

from gaussdecode.errors import GaussDecodeError, LandingError
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.disk import Disk
from gaussdecode.land.schemas import read_schema
from gaussdecode.land.snapshots import Requests, SnapshotStore
from gaussdecode.land.space import SpaceWait
from gaussdecode.land.verify import verify_files

TABLE: Final = "public.a"
SEED: Final = 20260131
EVERY: Final = 40
"""One byte in so many is tried, by chance, and every byte of the newest header and the layout."""


def landed() -> Image:
    """A landing with everything in it."""
    files = SimFiles()
    Landing(files, transactions=7).run()
    store = SnapshotStore(Disk(files, SpaceWait(), "store"))
    store.prepare()
    store.note({TABLE: {"state": "done", "n": 4, "oid": 16384}})
    store.ask({"table": TABLE, "where": None})
    store.save(TABLE, {"since_n": 3, "fingerprint": "f", "pages": [4], "chunk_pages": 2})
    rows = pa.table({"id": [1, 2, 3]})
    store.write_chunk(TABLE, 0, rows.schema, [rows])
    return files.image


def start(image: Image) -> dict[str, Any]:  # Any: facts of many kinds
    """All that a start goes by; raises what the daemon would end with."""
    files = SimFiles(image.copy())
    log = Landing(files, "again").open()
    store = SnapshotStore(log.disk)
    store.prepare()
    try:
        return {
            "log": facts(log),
            "layout": dataclasses.replace(log.layout),
            "schemas": [read_schema(log.disk, *of) for of in sorted(log.schemas.items())],
            "ledger": store.ledger(),
            "requests": usable(store.requests()),
            "state": store.load(TABLE),
            "rows": [
                rows for path in store.chunks(TABLE).values() for rows in store.read_chunk(path)
            ],
        }
    finally:
        log.close()


def usable(requests: Requests) -> list[tuple[str, Any]]:  # Any: JSON
    """What was asked for; a request that is passed over with a word counts as refused."""
    for fault in requests.faults.values():
        raise LandingError(fault)
    return requests.found


def facts(log: CommitLog) -> dict[str, Any]:  # Any: facts of many kinds
    """What decides the next entry."""
    return {
        "next_n": log.next_n,
        "position": log.position,
        "schemas": log.schemas,
        "floor": log.floor,
        "compacted": log.compacted,
        "state": log._state,
    }


def flips(image: Image, paths: list[str], every: int) -> Iterator[tuple[str, int, Image]]:
    """The image with one byte changed: a digit to another digit, anything else by one bit."""
    chance = random.Random(SEED)
    for path in paths:
        number, file = image.file(path)
        for at in range(len(file.data)):
            if chance.randrange(every) and not (every > 1 and at == len(file.data) - 1):
                continue
            data = bytearray(file.data)
            data[at] ^= 1
            changed = image.copy()
            changed.nodes[number] = file._replace(data=bytes(data), synced=bytes(data))
            yield path, at, changed


def read_paths(image: Image) -> list[str]:
    """Every file but the rows that landed, which `test_verify` damages."""
    return sorted(path for path in image.paths() if not path.endswith(".parquet"))


def newest_header(image: Image) -> str:
    """Path of the newest checkpoint."""
    return max(path for path in image.paths() if path.startswith("commits/checkpoints/"))


@pytest.fixture(scope="module")
def whole() -> Image:
    """The landing, once."""
    return landed()


def test_every_flipped_byte_is_noticed_or_irrelevant(whole: Image) -> None:
    """A start either refuses in a sentence or goes by exactly what was written."""
    sound = start(whole)
    refused = 0
    for path, at, changed in flips(whole, read_paths(whole), EVERY):
        try:
            found = start(changed)
        except GaussDecodeError:
            refused += 1
            continue
        assert found == sound, f"byte {at} of {path}"
    assert refused > 100


def test_every_digit_of_the_newest_header_is_noticed(whole: Image) -> None:
    """What a start goes on from: not one byte of it is believed alone."""
    path = newest_header(whole)
    header = len(whole.file(path)[1].data.split(b"\n")[0])
    for _, at, changed in flips(whole, [path, "layout.json"], 1):
        if at >= header:
            continue
        with pytest.raises(GaussDecodeError):
            start(changed)


def test_verify_notices_every_flipped_byte(whole: Image) -> None:
    """Whatever is read at a start, `verify` says that it is altered."""
    assert verify_files(SimFiles(whole.copy())).is_clean
    for path, at, changed in flips(whole, read_paths(whole), 3 * EVERY):
        try:
            report = verify_files(SimFiles(changed))
        except GaussDecodeError:
            continue
        assert not report.is_clean, f"byte {at} of {path}"
