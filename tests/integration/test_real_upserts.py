"""Six sessions of a real openGauss 6.0.2 that insert the same three keys ON DUPLICATE KEY.

Who is overtaken writes its row and takes it back. The server's serial stream leaves both out of a
table on heap: it is the oracle for the parallel ones. On ustore the inserted row stays in all streams.
"""

import itertools
from pathlib import Path

import pytest
from kit import landing, oracle, realstream, targets
from kit.landing import Change, Landing

from gaussdecode.cli import main
from gaussdecode.land.verify import verify
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.store import Target

pytestmark = pytest.mark.integration
SERIAL = "6.0.2/ups-serial"
HEAP, USTORE = ("public", "ups_heap"), ("public", "ups_ustore")
OVERTAKEN = 246  # on heap, as the parallel streams show them
STRANGE = 69  # rows that streams insert into the ustore table though their key is there


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each stream, landed."""
    folder = tmp_path_factory.mktemp("upserts")
    found = {}
    for name in realstream.UPSERTS:
        file = realstream.write_capture(name, folder)
        found[name] = folder / name.replace("/", "-")
        decoders = "1" if name == SERIAL else "3"
        assert main(["replay", str(file), "--root", str(found[name]), "--decoders", decoders]) == 0
    return found


@pytest.fixture(params=realstream.UPSERTS)
def name(request: pytest.FixtureRequest) -> str:
    """Each stream in turn."""
    found: str = request.param
    return found


def _facts(change: Change) -> tuple[object, ...]:
    old = None if change.old is None else tuple(change.old.items())
    return (
        change.xid,
        change.order[-1],
        change.schema.table,
        change.op,
        tuple(change.new.items()),
        old,
    )


def test_all_streams_land_the_same(name: str, roots: dict[str, Path]) -> None:
    """Row by row with its place in its transaction; the sums say what was left out, and why."""
    landed, serial = landing.read(roots[name]), landing.read(roots[SERIAL])
    assert list(map(_facts, landed.changes)) == list(map(_facts, serial.changes))
    assert len(landed.changes) > 20_000
    left_out = [entry["extra"].get("sums", {}).get("left_out") for entry in landed.entries]
    expected = {} if name == SERIAL else {"speculative": {"I": OVERTAKEN, "D": OVERTAKEN}}
    assert [one for one in left_out if one] == ([expected] if expected else [])
    assert not verify(roots[name]).findings
    assert not {change.schema.key for change in landed.changes} - {("id",)}


def _states(landed: Landing, table: tuple[str, str]) -> oracle.TableState:
    return oracle.replay([of for of in landed.changes if of.schema.table == table])[table]


def test_heap_is_the_servers(name: str, roots: dict[str, Path]) -> None:
    """No row is inserted, changed or removed that was not there, and the end is the server's."""
    state = _states(landing.read(roots[name]), HEAP)
    oracle.compare(HEAP, state, realstream.final_rows(name)[HEAP])


def test_targets_are_the_servers(name: str, roots: dict[str, Path], tmp_path: Path) -> None:
    """Nothing stands still, no key is there twice, now or at any time; what does not fit is counted."""
    summary = apply_with(
        LocalEngine(), roots[name], tmp_path, Options(accept_hidden_truncates=True, history=True)
    )
    assert (summary.stopped, summary.unmatched) == ({}, {"public.ups_ustore": STRANGE})
    target = Target(tmp_path)
    for table, rows in realstream.final_rows(name).items():
        targets.compare_rows(target, table, rows)
        version = target.newest(".".join(table))
        assert version is not None
        spans = sorted(
            (row["id"], (row["gd_lsn"], row["gd_seq"]), (row["gd_to_lsn"], row["gd_to_seq"]))
            for file in version.closed
            for row in current_rows(target.table_root(".".join(table)), file).to_pylist()
        )
        assert len(spans) > 1000
        for (key, _, end), (other, begin, _) in itertools.pairwise(spans):
            assert key != other or end <= begin
