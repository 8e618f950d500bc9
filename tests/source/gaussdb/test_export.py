"""The position of a view of GaussDB, and what is read in it, over the simulator."""

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Iterator

import pyarrow as pa
import pytest
from kit.gaussserver import GaussServer
from kit.gausssql import Catalogue
from kit.gaussstore import Store
from kit.postgres import Postgres

from gaussdecode.errors import SourceError, SourceRefusedError
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.export import Chunk, PublishedTable, TableChangedError
from gaussdecode.source.gaussdb import export as gaussexport
from gaussdecode.source.gaussdb.export import TableReader
from gaussdecode.source.gaussdb.tables import storage_option
from gaussdecode.source.gaussdb.view import CsnView, View
from gaussdecode.source.relations import WhiteList

pytestmark = pytest.mark.integration
WHOLE = Chunk(0, 0, 0, None)
FAR = (1 << 33) + 5  # a CSN of which the server prints the lower half


@pytest.fixture
def gauss(servers: Callable[[int], Postgres]) -> Iterator[GaussServer]:
    """A server whose CSNs need more than 32 bits."""
    catalogue = Catalogue(servers(15))
    with GaussServer(Store(first_csn=FAR), catalogue=catalogue) as server:
        yield server
    catalogue.close()
    assert not server.unknown_queries


def address(gauss: GaussServer) -> SourceAddress:
    """How to reach it."""
    return SourceAddress(
        f"host=127.0.0.1 port={gauss.port} dbname={gauss.database} user=replica sslmode=disable",
        gauss.users["replica"].password,
        is_insecure_allowed=True,
    )


@pytest.fixture
def view(gauss: GaussServer) -> Iterator[View]:
    """A view."""
    with View.open(address(gauss), 5.0, lambda: False) as opened:
        yield opened


def rows(*pairs: tuple[int, int | None]) -> pa.Table:
    """Changes at pairs of position and CSN."""
    return pa.table(
        {
            "gd_lsn": pa.array([lsn for lsn, _ in pairs], pa.int64()),
            "gd_csn": pa.array([csn for _, csn in pairs], pa.int64()),
        }
    )


def unreached(csn: int) -> tuple[int, int]:
    """In a landing by LSN nobody asks for a CSN."""
    raise AssertionError(csn)


def test_a_view_by_csn_stands_where_all_below_has_landed(gauss: GaussServer) -> None:
    """Of its CSN the server tells 32 bits; the rest is that of the next one."""
    gauss.store.csn_clock.skip(5 << 32)
    with CsnView.open(address(gauss), 5.0, lambda: False) as view:
        csn = gauss.store.next_csn
        assert csn > 5 << 32
        gauss.store.commit(())
        asked: list[int] = []

        def reach(wanted: int) -> tuple[int, int]:
            asked.append(wanted)
            return wanted + 1, 77

        view.find_position(100, lambda _lsn, _nudge: [], reach)
        assert asked == [csn - 1]
        assert (view.through_csn, view.lsn) == (csn, 77)
        view.confirm(lambda _lsn, _nudge: [rows((110, csn - 1))])


@pytest.mark.parametrize(
    ("changes", "position"),
    [
        ([], 100),
        ([rows((110, -1), (120, -3))], 120),
        ([rows((110, 0), (120, 7))], 100),
        ([rows((110, -1)), rows((105, -2), (111, 0))], 110),
    ],
    ids=["quiet", "all inside", "all outside", "in between"],
)
def test_position_is_the_last_change_inside(
    gauss: GaussServer, view: View, changes: list[pa.Table], position: int
) -> None:
    """The position is where the last transaction below the view's CSN ends, or the boundary."""
    csn = gauss.store.next_csn
    shifted = [
        table.set_column(
            1, "gd_csn", pa.array([csn + of for of in table["gd_csn"].to_pylist()], pa.int64())
        )
        for table in changes
    ]
    asked: list[int] = []

    def shown(lsn: int, nudge: Callable[[], object]) -> list[pa.Table]:
        asked.append(lsn)
        nudge()
        return shifted

    view.find_position(100, shown, unreached)
    assert view.lsn == position
    view.confirm(shown)
    assert asked[1] > asked[0] >= gauss.store.committed[0].end_lsn


def test_no_position_between_inverted_transactions(gauss: GaussServer, view: View) -> None:
    """A transaction outside before one inside leaves no position."""
    csn = gauss.store.next_csn
    with pytest.raises(SourceError, match="another order") as caught:
        view.find_position(100, lambda _lsn, _nudge: [rows((110, csn), (120, csn - 1))], unreached)
    assert caught.value.retryable


def test_late_commit_record_is_noticed(gauss: GaussServer, view: View) -> None:
    """A transaction inside whose record comes after the position is not landed twice."""
    csn = gauss.store.next_csn
    view.find_position(100, lambda _lsn, _nudge: [], unreached)
    with pytest.raises(SourceError, match="another order"):
        view.confirm(lambda _lsn, _nudge: [rows((110, csn - 1))])


def test_stream_must_tell_numbers(view: View) -> None:
    """Without a CSN nothing can be joined."""
    with pytest.raises(SourceRefusedError, match="CSN"):
        view.find_position(100, lambda _lsn, _nudge: [rows((110, None))], unreached)


def table_of(gauss: GaussServer) -> PublishedTable:
    """A table of two rows, as the stream sends it."""
    columns = {"id": "int8", "v": "text"}
    made = gauss.store.create_table("public", "orders", columns, key=["id"])
    transaction = gauss.store.begin()
    transaction.insert(made, {"id": "1", "v": "a\tb"}, {"id": "2", "v": None})
    transaction.commit()
    return PublishedTable("public", "orders", made.oid, False, "d", None)


def reader_of(gauss: GaussServer, *wanted: tuple[str, str]) -> TableReader:
    """A reader."""
    return TableReader(address(gauss), WhiteList(wanted), 5.0)


def test_reads_what_the_view_has(gauss: GaussServer) -> None:
    """A reader sees the view's rows, whole or by key, and not those of later."""
    table = table_of(gauss)
    with View.open(address(gauss), 5.0, lambda: False) as view, reader_of(gauss) as reader:
        transaction = gauss.store.begin()
        transaction.insert(gauss.store.tables["public", "orders"], {"id": "3", "v": "later"})
        transaction.commit()
        reader.begin(view)
        shape = reader.shape(table)
        lines = b"1\ta\\tb\n2\t\\N\n"
        assert b"".join(reader.copy_chunk(shape, WHOLE, None)) == lines
        assert b"".join(reader.copy_chunk(shape, WHOLE, "id > 1")) == b"2\t\\N\n"
        assert b"".join(reader.copy_keys(shape, [0], ["{1,3}"], None)) == b"1\ta\\tb\n"
        assert reader.measure_chunk(shape, WHOLE, None, has_checksum=False).rows == 2
        reader.check_files(shape, [0])
        reader.end()
        assert reader.measure_chunk(shape, WHOLE, None, has_checksum=False).rows == 3


def test_truncated_table_is_noticed(gauss: GaussServer) -> None:
    """To an older view a truncated table seems empty; that is an error, and no empty table."""
    table = table_of(gauss)
    with View.open(address(gauss), 5.0, lambda: False) as view, reader_of(gauss) as reader:
        reader.begin(view)
        shape = reader.shape(table)
        transaction = gauss.store.begin()
        transaction.truncate(gauss.store.tables["public", "orders"])
        transaction.commit()
        assert b"".join(reader.copy_chunk(shape, WHOLE, None)) == b""
        with pytest.raises(TableChangedError, match="truncated"):
            reader.check_files(shape, [0])


def test_tables_of_the_stream(gauss: GaussServer) -> None:
    """The white list decides; tables that are stored by column are in no stream."""
    table_of(gauss)
    column_store = gauss.store.create_table("public", "sums", {"id": "int8"})
    gauss.store.put_table(dataclasses.replace(column_store, options=("orientation=column",)))
    for name in ("pg_cudesc_16402", "pg_delta_16402"):  # where its rows are kept
        gauss.store.create_table("cstore", name, {"col_id": "int4"})
    gauss.store.create_table("other", "orders", {"id": "int8"})
    with reader_of(gauss) as reader:
        titles = [table.title for table in reader.published()]
        assert titles == ["other.orders", "public.orders"]
    with reader_of(gauss, ("public", "*")) as reader:
        assert [table.title for table in reader.published()] == ["public.orders"]


def test_copy_that_is_left_loses_the_connection(
    gauss: GaussServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows what would come next on it."""
    monkeypatch.setattr(gaussexport, "COPY_BYTES", 1)
    table = table_of(gauss)
    with View.open(address(gauss), 5.0, lambda: False) as view, reader_of(gauss) as reader:
        reader.begin(view)
        shape = reader.shape(table)
        with contextlib.closing(_generator(reader.copy_chunk(shape, WHOLE, None))) as copied:
            assert next(copied).startswith(b"1\t")
        assert reader.connection.socket.fileno() == -1


def _generator(lines: Iterator[bytes]) -> Generator[bytes, None, None]:
    assert isinstance(lines, Generator)
    return lines


def test_options_of_a_table() -> None:
    """Storage options are read as the server spells them."""
    options = '{orientation=row,compression=no,"enable_rowsecurity=True"}'
    assert storage_option(options, "enable_rowsecurity") == "true"
    assert storage_option(options, "orient") == storage_option(None, "x") == ""
