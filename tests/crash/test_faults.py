"""Errors of the disk instead of crashes, at every operation that can meet them.

A full disk only takes time. A failing disk ends the process with exit status 74, whatever
was confirmed before stays, and the next process lands the rest.
"""

import errno
import itertools
import os
from collections.abc import Callable

import pytest
from kit.landrun import (
    TABLES,
    Landing,
    check_invariants,
    landed_rows,
    row_group,
    transaction_lsn,
)
from kit.simdisk import Image, SimFiles

from gaussdecode.errors import DiskError, GaussDecodeError, LandingError
from gaussdecode.land.failpoints import Operation
from gaussdecode.land.space import SpaceWait
from gaussdecode.land.writer import Writer
from gaussdecode.model.landing import EntryKind, SourcePosition
from gaussdecode.model.request import EntryRequest

pytestmark = pytest.mark.crash

SYNCS = (Operation.SYNC, Operation.SYNC_DIRECTORY)


def operations() -> list[tuple[Operation, str]]:
    """Every changing operation of one undisturbed run."""
    files = SimFiles()
    Landing(files, with_retention=True).run()
    return files.operations


def fail_once(number: int, code: int) -> Callable[[int, Operation, str], int]:
    """Fail one operation, by its number."""
    return lambda at, _operation, _path: code if at == number else 0


def fail_from(number: int, code: int) -> Callable[[int, Operation, str], int]:
    """Fail one operation and all that follow."""
    return lambda at, _operation, _path: code if at >= number else 0


def run_to_error(files: SimFiles, landing: Landing) -> GaussDecodeError:
    """Run until the fault; give the error the process ends with."""
    with pytest.raises(GaussDecodeError) as caught:
        landing.run()
    files.close()
    return caught.value


def test_full_disk_only_takes_time() -> None:
    """ENOSPC at any operation but fsync is waited out, in the middle of a file too."""
    for number, (operation, path) in enumerate(operations()):
        if operation in (*SYNCS, Operation.REMOVE_DIRECTORY):
            continue
        naps: list[float] = []
        files = SimFiles(fail=fail_once(number, errno.ENOSPC))
        landing = Landing(files, with_retention=True, space=SpaceWait(sleep=naps.append))
        landing.run()
        assert len(naps) == 1, (number, operation, path)
        check_invariants(files, landing.transactions, with_retention=True)


@pytest.mark.parametrize("fault", [fail_once, fail_from], ids=["once", "from then on"])
def test_failing_fsync_ends_the_process(
    fault: Callable[[int, int], Callable[[int, Operation, str], int]],
) -> None:
    """EIO at any fsync: status 74, no second try, nothing confirmed is lost, the rest lands."""
    for number, (operation, path) in enumerate(operations()):
        if operation not in SYNCS:
            continue
        image = Image()
        files = SimFiles(image, fail=fault(number, errno.EIO))
        landing = Landing(files, with_retention=True)
        error = run_to_error(files, landing)
        assert error.exit_status == os.EX_IOERR, (number, operation, path)
        again = SimFiles(image)
        Landing(again, "second", with_retention=True).run()
        check_invariants(again, landing.transactions, with_retention=True)


def test_failing_disk_ends_the_process() -> None:
    """Any other operation: the same, and what was confirmed is in the log."""
    codes = itertools.cycle([errno.EIO, errno.EROFS])
    for (number, (operation, path)), code in zip(enumerate(operations()), codes, strict=False):
        if operation in (*SYNCS, Operation.REMOVE_DIRECTORY):
            continue
        image = Image()
        files = SimFiles(image, fail=fail_from(number, code))
        landing = Landing(files)
        if number >= len(files.operations) and not _reaches(landing, number):
            continue
        error = run_to_error(files, landing)
        assert isinstance(error, DiskError), (number, operation, path)
        landed = {lsn for lsn, _, _ in landed_rows(SimFiles(image))}
        third = transaction_lsn(3)
        genesis = transaction_lsn(0)
        assert set(landing.confirmed) - {third, genesis} <= landed
        again = SimFiles(image)
        Landing(again, "second").run()
        check_invariants(again, landing.transactions, with_retention=False)


def _reaches(landing: Landing, number: int) -> bool:
    """Whether a run has that many operations; the one without retention has fewer."""
    files = SimFiles()
    Landing(files, transactions=landing.transactions).run()
    return number < len(files.operations)


def test_stop_ends_the_wait_for_space() -> None:
    """Asked to stop while the disk is full, the writer gives up instead of hanging."""
    files = SimFiles(fail=lambda _n, op, _p: errno.ENOSPC if op is Operation.WRITE else 0)
    space = SpaceWait(should_stop=lambda: True, sleep=lambda _: None)
    error = run_to_error(files, Landing(files, space=space))
    assert "stopped while waiting" in str(error)
    assert error.exit_status == os.EX_IOERR


def test_second_writer_is_refused() -> None:
    """While one process has the landing, another cannot open it."""
    files = SimFiles()
    log = Landing(files).open()
    with pytest.raises(LandingError, match="another process"):
        Landing(files, "second").open()
    log.close()
    Landing(files, "second").open().close()


def test_overtaken_writer_is_fenced() -> None:
    """With a lock that does not hold, the slower of two writers stops without a trace."""
    files = SimFiles(holds_lock=False)
    slow, errors, confirmed = Landing(files, "slow"), list[BaseException](), list[SourcePosition]()
    log = slow.open()
    writer = Writer(log, lanes=1, on_durable=confirmed.append, on_error=errors.append)
    intake = writer.begin()
    Landing(SimFiles(files.image), "fast").run()
    schema_id, _ = intake.schemas.schema_id_for(TABLES[0], {"columns": []})
    intake.write(row_group(TABLES[0], schema_id, transaction_lsn(1), range(2)))
    intake.commit(
        EntryRequest(kind=EntryKind.GENESIS, position=SourcePosition(0, 1, transaction_lsn(1)))
    )
    with pytest.raises(LandingError, match="fenced"):
        writer.drain()
    assert not confirmed
    assert len(errors) == 1
    writer.close()
    log.close()
    again = SimFiles(files.image)
    Landing(again, "third").open().close()
    check_invariants(again, slow.transactions, with_retention=False)


@pytest.mark.parametrize("number", range(4))
def test_hidden_entry_of_another_writer_fences(number: int) -> None:
    """The hidden name of the next entry is taken: fenced, and the other's entry stays."""
    image = Image()
    Landing(SimFiles(image), transactions=number).run()
    log = Landing(SimFiles(image), "slow", number + 1).open()
    next_n = log.next_n
    log.close()
    files = SimFiles(
        image,
        fail=lambda _n, op, path: (
            errno.EEXIST if op is Operation.LINK and path.endswith(f"/.{next_n:020d}.json") else 0
        ),
    )
    error = run_to_error(files, Landing(files, "slow", number + 1))
    assert "fenced" in str(error)
