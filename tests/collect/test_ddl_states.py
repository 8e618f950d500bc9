"""Columns as DDL in the stream tells them: what is believed, and what is not."""

import json
from typing import Any

import pytest
from collect.test_tables import Schemas, Server, numbers, tables_of

from gaussdecode.collect.ddl_states import DdlStates, StateColumn
from gaussdecode.model.columns import GONE, NO_CATALOG, WireColumn
from gaussdecode.model.fingerprint import ColumnState
from gaussdecode.model.landing import Position

OID = 7  # of the table of `Server`
_AT = Position(60, 0)


def columns(**numbers_by_name: int) -> list[dict[str, Any]]:  # Any: JSON
    """Columns of a message, of one type."""
    return [
        {"attribute_number": number, "name": name, "type_oid": 20, "type_modifier": -1}
        for name, number in numbers_by_name.items()
    ]


def message(found: list[dict[str, Any]] | None = None, **more: Any) -> bytes:  # Any: JSON
    """ALTER TABLE of the table."""
    of = {"version": 1, "object_type": "table", "oid": OID, "object_count": 1, "columns": found}
    return json.dumps(of | more).encode()


def state(**numbers_by_name: int) -> tuple[StateColumn, ...]:
    """As a look sees it."""
    return tuple(StateColumn(number, name, 20, -1) for name, number in numbers_by_name.items())


def wire(*names: str) -> list[WireColumn]:
    """As the stream describes it."""
    return [WireColumn(name, 20, -1) for name in names]


def take(states: DdlStates, content: bytes, at: Position = _AT) -> None:
    """As the stream brings it."""
    states.take(content, at)


@pytest.fixture
def states() -> DdlStates:
    """The table as (id, v), which a look saw that the stream has passed."""
    made = DdlStates()
    made.looked({OID: state(id=1, v=2)}, 50, is_recording=True)
    assert made.passed(49, {}) == []
    assert made.numbers(OID, wire("id", "v")) is None, "the stream was not there yet"
    assert made.passed(50, {}) == []
    return made


def test_the_last_command_counts(states: DdlStates) -> None:
    """By name and type, and for what is described alone."""
    assert states.numbers(OID, wire("id", "v")) == (1, 2)
    take(states, message(columns(id=1)))
    assert states.numbers(OID, wire("id", "v")) is None
    take(states, message(columns(id=1, v=3, w=4)))
    assert states.numbers(OID, wire("id", "v")) == (1, 3)
    assert not states.is_whole(OID, (1, 3))
    assert states.is_whole(OID, (1, 3, 4))
    assert states.numbers(OID, wire("v", "id")) is None
    assert states.numbers(OID, [WireColumn("id", 20, -1), WireColumn("v", 23, -1)]) is None
    take(states, message(None, dropped=[{"object_type": "table", "oid": OID}], dropped_count=1))
    assert states.numbers(OID, wire("id", "v")) is None


@pytest.mark.parametrize(
    "content",
    [
        message(columns(id=1, v=5), error="22021"),
        message(is_cut=True),
        message(columns(id=1, v=2), object_count=2),
        message(None, dropped=[], dropped_count=1),
        message([{"name": "id"}]),
        message(columns(id=1), descendants=[{"oid": 8}] * 1001),
        message(columns(id=1, **{f"c{n}": n for n in range(2, 1700)})),
        b'{"version": 1, "objects": 3}',
        b"{",
    ],
)  # fmt: skip
def test_a_command_that_may_be_of_any_table(states: DdlStates, content: bytes) -> None:
    """Nothing is believed until the next look."""
    take(states, content)
    assert states.numbers(OID, wire("id", "v")) is None
    assert not states.is_recording
    states.looked({OID: state(id=1, v=2)}, 60, is_recording=True)
    assert states.passed(60, {}) == []
    assert states.numbers(OID, wire("id", "v")) == (1, 2)


def test_partitions_follow_their_table(states: DdlStates) -> None:
    """Their columns come with its; of those beyond the first hundred nothing is known any more."""
    states.looked({8: state(v=1), 9: state(v=1)}, 50, is_recording=True)
    assert states.passed(50, {}) == []
    below = [{"oid": 8, "columns": columns(v=2)}, {"oid": 9, "columns": None}]
    take(states, message(columns(id=1), descendants=below))
    assert (states.numbers(8, wire("v")), states.numbers(9, wire("v"))) == ((2,), None)


def test_a_number_that_comes_back_is_forged(states: DdlStates) -> None:
    """After it no message of the table is believed, until a look."""
    take(states, message(columns(id=1, v=3)))
    take(states, message(columns(id=1, v=2)))
    take(states, message(columns(id=1, v=2)))
    assert states.numbers(OID, wire("id", "v")) is None
    states.looked({OID: state(id=1, v=3)}, 60, is_recording=True)
    assert states.passed(60, {}) == []
    assert states.numbers(OID, wire("id", "v")) == (1, 3)


def test_a_look_contradicts(states: DdlStates) -> None:
    """A table whose rows took numbers is told of; DDL that came since the look explains it."""
    take(states, message(columns(id=1, v=3)))
    states.looked({OID: state(id=1, v=4)}, 60, is_recording=True)
    assert states.passed(60, {OID: state(id=1, v=3)}) == [], "seen meanwhile"
    states.looked({OID: state(id=1, v=4)}, 70, is_recording=True)
    take(states, message(columns(id=1, v=5)))
    assert states.passed(70, {}) == []
    assert states.numbers(OID, wire("id", "v")) == (1, 5)
    states.believed(OID)
    states.looked({OID: state(id=1, v=6)}, 80, is_recording=True)
    assert states.passed(80, {}) == [OID]
    assert states.numbers(OID, wire("id", "v")) is None


def test_without_triggers_nothing_is_known(states: DdlStates) -> None:
    """What the stream may not have shown is not believed."""
    states.looked({}, 60, is_recording=False)
    take(states, message(columns(id=1, v=2)))
    assert states.numbers(OID, wire("id", "v")) is None


def test_another_process_goes_on_where_the_landing_ends(states: DdlStates) -> None:
    """A record may be newer than the entry that it was written for."""
    first = states.to_record(50)
    take(states, message(columns(id=1, v=3)))
    record = json.loads(json.dumps(states.to_record(60)))
    assert DdlStates(record, 60).numbers(OID, wire("id", "v")) == (1, 3)
    assert DdlStates(record, 59).numbers(OID, wire("id", "v")) == (1, 2)
    assert DdlStates(record, 49).numbers(OID, wire("id", "v")) is None
    assert len(first["generations"]) == 1


def test_the_first_command_on_each_table_has_its_place(states: DdlStates) -> None:
    """Whether it says columns or not, and once."""
    take(states, message(columns(id=1)), Position(60, 3))
    take(states, message(columns(id=1, v=3)), Position(61, 0))
    take(states, message(None, oid=8), Position(62, 0))
    assert states.take_commands() == {OID: Position(60, 3), 8: Position(62, 0)}
    assert states.take_commands() == {}


# ---- with the catalogue ----------------------------------------------------------------------


def test_a_column_made_anew_while_nobody_read() -> None:
    """The catalogue leaves two ways, and DDL before the rows says which."""
    server, schemas = Server("id", "v"), Schemas()
    tables = tables_of(server, schemas)
    tables.ddl.looked({OID: state(id=1, v=2)}, 50, is_recording=True)
    tables.ddl.passed(50, {})
    before, between = server.sent(), message(columns(id=1))
    server.drop("v")
    server.add("v")
    tables.find(before)
    assert numbers(schemas) == [1, 2]
    take(tables.ddl, between)
    take(tables.ddl, message(columns(id=1, v=3)))
    tables.find(server.sent())
    assert numbers(schemas) == [1, 3]
    assert schemas.records[-1]["unknown"] is None


@pytest.mark.parametrize("gone", [GONE, NO_CATALOG])
def test_a_table_that_is_gone(gone: str) -> None:
    """DDL alone tells its columns; not where some of them were not sent."""
    server, schemas = Server("id", "v"), Schemas()
    tables = tables_of(server, schemas)
    tables.ddl.looked({}, 50, is_recording=True)
    described = server.sent()
    server.is_gone, server.is_reachable = gone == GONE, gone != NO_CATALOG
    take(tables.ddl, message(columns(id=1, v=3, more=4)))
    tables.find(described)
    assert numbers(schemas) == [None, None]
    take(tables.ddl, message(columns(id=1, v=3)))
    tables.find(described)
    assert numbers(schemas) == [1, 3]


def test_the_catalogue_disproves_a_forged_message() -> None:
    """What it proves stands, and the message is forgotten; so is a way that it does not leave."""
    server, schemas = Server("id", "v"), Schemas()
    tables = tables_of(server, schemas)
    tables.ddl.looked({}, 50, is_recording=True)
    take(tables.ddl, message(columns(id=1, v=9)))
    tables.find(server.sent())
    assert numbers(schemas) == [1, 2]
    assert tables.ddl.numbers(OID, wire("id", "v")) is None
    server.drop("v")
    server.add("v")
    take(tables.ddl, message(columns(id=1, v=4)))
    tables.find(server.sent())
    assert numbers(schemas) == [1, None]


PLAIN = "ALTER TABLE t ALTER v TYPE bigint"
OTHERS = "BEGIN; ALTER TABLE t ALTER v TYPE bigint USING v * 2"
INT, BIG, TEXT, REAL = 23, 20, 25, 700


def retyped(type_oid: int, xid: int, statement: str | None = PLAIN, count: int = 1) -> bytes:
    """A command after which column v has a type."""
    of = {
        "attribute_number": 2,
        "name": "v",
        "type_oid": type_oid,
        "type_modifier": -1,
        "row_xid": xid,
    }
    other = {**of, "attribute_number": 3, "name": "c"}
    return message([of, other], statement=statement, rewritten_count=count)


@pytest.mark.parametrize(
    ("commands", "is_known"),
    [
        ([retyped(BIG, 9)], True),
        ([retyped(BIG, 9), retyped(BIG, 9, "ALTER TABLE t ADD c int", 0)], True),
        ([retyped(INT, 5, "ALTER TABLE t ALTER c TYPE bigint USING 2"), retyped(BIG, 9)], True),
        ([retyped(BIG, 9, OTHERS, 0)], True),
        ([], False),
        ([retyped(BIG, 8)], False),
        ([retyped(BIG, 9, OTHERS)], False),
        ([retyped(BIG, 9), retyped(BIG, 9, OTHERS)], False),
        ([retyped(BIG, 9, None)], False),
        ([retyped(BIG, 9, "INSERT INTO jobs VALUES (1)")], False),
        ([retyped(BIG, 9, PLAIN.replace("v", "w"))], False),
        ([retyped(TEXT, 8), retyped(BIG, 9)], False),
        ([retyped(REAL, 9)], False),
        ([message([]), retyped(BIG, 9)], False),
        ([message([{"name": "id"}]), retyped(BIG, 9)], False),
        ([retyped(BIG, 9), *[message([], oid=8)] * 200], False),
    ],
)  # fmt: skip
def test_values_under_another_type_are_known_by_statements(
    states: DdlStates, commands: list[bytes], *, is_known: bool
) -> None:
    """Of all commands since the look before, up to the one that wrote the column last."""
    for content in commands:
        take(states, content)
    before, now = ColumnState("v", INT, -1, 5), ColumnState("v", BIG, -1, 9)
    assert states.keeps_values(OID, 2, before, now) is is_known
    states.take_commands()
    assert not states.keeps_values(OID, 2, before, now)


def test_a_column_that_a_conversion_of_another_wrote(states: DdlStates) -> None:
    """The server takes its constant into the rows; with USING nobody knows."""
    before, now = ColumnState("v", INT, -1, 5), ColumnState("v", INT, -1, 9)
    take(states, retyped(INT, 9, "ALTER TABLE t ALTER c TYPE bigint"))
    assert states.keeps_values(OID, 2, before, now)
    take(states, retyped(INT, 9, OTHERS))
    assert not states.keeps_values(OID, 2, before, now)


@pytest.mark.parametrize(
    ("rewritten", "xid", "is_told"),
    [
        ([{"oid": OID, "reason": 4}], 9, True),
        ([{"oid": OID, "reason": 5}], 9, False),
        ([{"oid": OID, "reason": 4}], 8, False),
        ([], 9, False),
    ],
)
def test_a_file_that_commands_replaced(
    states: DdlStates, rewritten: list[dict[str, int]], xid: int, *, is_told: bool
) -> None:
    """By the last command, and none of them made the table unlogged or logged."""
    more = {"rewritten": rewritten, "rewritten_count": len(rewritten)}
    take(states, message(columns(id=1, v=2), row_xid=xid, **more))
    assert states.replaced_file(OID, 9) is is_told
    assert not states.replaced_file(OID + 1, 9)


ADDS = "ALTER TABLE t ADD c int, ADD d int"


def added(
    xid: int, statement: str, constants: dict[int, str] | None, count: int = 0, type_oid: int = INT
) -> bytes:
    """A command after which the table has column d."""
    of = {
        "attribute_number": 4,
        "name": "d",
        "type_oid": type_oid,
        "type_modifier": -1,
        "row_xid": xid,
    }
    other = {**of, "attribute_number": 2, "name": "v"}
    return message([of, other], statement=statement, constants=constants, rewritten_count=count)


@pytest.mark.parametrize(
    ("commands", "is_told", "kept"),
    [
        ([added(9, ADDS, {})], True, {}),
        ([added(9, ADDS, {2: "7"})], True, {}),
        ([added(9, "SELECT f()", {4: "7"}), added(9, PLAIN, {}, 1)], True, {4: "7"}),
        ([message([]), added(9, ADDS, {}), added(9, PLAIN, {}, 1)], True, {}),
        ([added(9, ADDS, None)], False, {}),
        ([added(9, "SELECT f()", {})], False, {}),
        ([added(9, ADDS, {}, 1)], False, {}),
        ([added(8, ADDS, {4: "7"})], False, {}),
        ([added(9, ADDS, {4: "7"}), added(9, OTHERS, {}, 1)], False, {}),
        ([added(9, ADDS, {4: "7"}, type_oid=BIG), added(9, PLAIN, {}, 1)], False, {}),
        ([], False, {}),
    ],
)
def test_what_older_rows_have_in_an_added_column(
    states: DdlStates, commands: list[bytes], kept: dict[int, str], *, is_told: bool
) -> None:
    """A constant of the message, or NULL; a constant outlives entries that were never written."""
    for content in commands:
        take(states, content)
    assert states.tells_added(OID, 4, ColumnState("d", INT, -1, 9)) is is_told
    assert DdlStates(states.to_record(70), 50).constants(OID) == kept


def test_rows_that_landed_without_a_constant_are_in_doubt(states: DdlStates) -> None:
    """Their schema file says that older rows have NULL, and no row may come that says otherwise."""
    server, schemas = Server("id", "v"), Schemas()
    tables = tables_of(server, schemas)
    tables.ddl = states
    now = ColumnState("v", INT, -1, 9)
    tables.find(server.sent())  # before the command: that says nothing
    take(states, added(9, ADDS, {2: "7"}))
    tables.find(server.sent())
    assert not states.tells_added(OID, 2, now)
    states.take_commands()
    take(states, added(9, ADDS, {2: "7"}))
    assert states.tells_added(OID, 2, now)
    tables.find(server.sent())
    assert states.tells_added(OID, 2, now), "they landed with it"


def test_a_forged_constant_is_of_another_transaction(states: DdlStates) -> None:
    """The command itself is recorded too, and tells another one, or none."""
    take(states, added(9, ADDS, {4: "666"}), Position(59, 0))
    take(states, added(9, PLAIN, {}, 1))
    assert not states.tells_added(OID, 4, ColumnState("d", INT, -1, 9))
    assert states.constants(OID) == {}


def test_a_constant_that_only_a_command_told_lands(states: DdlStates) -> None:
    """In the schema file of the next rows: the catalogue has none any more."""
    server, schemas = Server("id", "v"), Schemas()
    tables = tables_of(server, schemas)
    tables.ddl = states
    take(states, added(9, ADDS, {2: "7"}))
    assert states.tells_added(OID, 2, ColumnState("v", INT, -1, 9))
    tables.find(server.sent())
    assert [column.get("constant") for column in schemas.records[-1]["columns"]] == [None, "7"]
