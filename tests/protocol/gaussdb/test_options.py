"""Tests for `gaussdecode.protocol.gaussdb.options`."""

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussdecode.errors import ConfigError
from gaussdecode.protocol.gaussdb.commands import MAX_COMMAND_BYTES, is_balanced
from gaussdecode.protocol.gaussdb.options import (
    StreamRequest,
    is_batched,
    server_options,
    server_white_list,
    start_command,
    stream_style,
)
from gaussdecode.settings.load import load
from gaussdecode.settings.option import Option, Section, SourceKind, Version
from gaussdecode.settings.options import OPTIONS
from gaussdecode.settings.sections import Config
from gaussdecode.settings.types import GIB

PARALLEL = "parallel-decode-num: 4"


class Server(NamedTuple):
    """A server's profile."""

    name: str
    version: Version
    is_commercial: bool = False


OPENGAUSS = Server("openGauss 6.0.0", (6, 0, 0))
OPENGAUSS_3 = Server("openGauss 3.0.1", (3, 0, 1))
GAUSSDB = Server("GaussDB 505.1", (505, 1, 0), True)
SERVERS = [OPENGAUSS_3, OPENGAUSS, GAUSSDB]
# Option, where it is set: what the servers above are told, None for nothing or a refusal.
TOLD: dict[str, tuple[str, str | None, str | None, str | None]] = {
    "include-xids": ("include-xids: false", "false", "false", "false"),
    "skip-empty-xacts": ("skip-empty-xacts: true", "true", "true", "true"),
    "include-timestamp": ("include-timestamp: false", "false", "false", "false"),
    "only-local": ("only-local: false", "false", "false", "false"),
    "white-table-list": ("white-table-list: 'a.b,*.c'", "a.b,*.c", "a.b,*.c", "a.b,*.c"),
    "max-txn-in-memory": ("max-txn-in-memory: 7", None, "7", "7"),
    "max-reorderbuffer-in-memory": ("max-reorderbuffer-in-memory: 3", None, "3", "3"),
    "desc-memory-limit": ("desc-memory-limit: 10", None, None, "10"),
    "include-user": ("include-user: true", None, None, "true"),
    "exclude-userids": ("exclude-userids: '10,11'", None, None, "10,11"),
    "exclude-users": ("exclude-users: 'eve,mallory'", None, None, "eve,mallory"),
    "dynamic-resolution": ("dynamic-resolution: false", None, None, "false"),
    "standby-connection": ("standby-connection: true", "true", "true", "true"),
    "sender-timeout": ("sender-timeout: 60000", None, "60000", "60000"),
    "change-log-max-len": ("change-log-max-len: 1024", None, None, "1024"),
    "max-decode-to-sender-cache-num": (
        "max-decode-to-sender-cache-num: 16", None, None, "16",
    ),
    "enable-heartbeat": ("enable-heartbeat: true", None, None, "true"),
    "parallel-decode-num": (PARALLEL, "4", "4", "4"),
    "output-order": ("output-order: 1", None, None, "1"),
    "auto-advance": ("parallel-decode-num: 1, auto-advance: true", None, None, None),
    "skip-generated-columns": ("skip-generated-columns: true", None, None, "true"),
    "enable-ddl-decoding": ("enable-ddl-decoding: true", None, None, "true"),
    "enable-ddl-json-format": ("enable-ddl-json-format: true", None, None, "true"),
    "timezone-is-utc": ("timezone-is-utc: true", None, None, "true"),
    "decode-sequence": ("decode-sequence: false", None, None, None),
    "data-limit": ("data-limit: 1", None, None, None),
    "logical-receiver-num": ("logical-receiver-num: 2, output-order: 1", None, None, "2"),
    "slice-id": ("slice-id: 0, output-order: 1", None, None, "0"),
    "start-position": ("start-position: 2357/0", None, None, None),
    "force-binary": ("force-binary: true", "true", "true", "true"),
    "decode-style": ("decode-style: j", "j", "j", "j"),
    "sending-batch": ("sending-batch: 0", "0", "0", "0"),
    "parallel-queue-size": ("parallel-queue-size: 256", None, "256", "256"),
    "include-originid": ("include-originid: true", None, "true", None),
}  # fmt: skip


def configured(directory: Path, decoding: str = "", plugin: str = "mppdb_decoding") -> Config:
    """A configuration of kind gaussdb."""
    path = directory / "orders.yaml"
    path.write_text(
        "slot: orders\n"
        f"source: {{kind: gaussdb, dsn: host=db dbname=d user=u, plugin: {plugin}}}\n"
        f"landing: {{root: /l}}\ndecoding: {{{decoding}}}\n",
        encoding="utf-8",
    )
    return load(path, memory_bytes=8 * GIB)


def test_the_table_below_is_complete() -> None:
    """Every option is tried."""
    assert TOLD.keys() == {option.name for option in OPTIONS}


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
@pytest.mark.parametrize("which", range(3), ids=[server.name for server in SERVERS])
def test_what_is_passed_on(option: Option, which: int, tmp_path: Path) -> None:
    """A set option reaches exactly the servers that know it; or it is refused, with its key."""
    text, *expected = TOLD[option.name]
    is_serial = option.section is Section.SERIAL or "parallel-decode-num" in text
    config = configured(tmp_path, text if is_serial else f"{PARALLEL}, {text}")
    server = SERVERS[which]
    try:
        told = server_options(
            StreamRequest.of(config), server, is_landing="output-order" not in text
        )
    except ConfigError as error:
        assert f"decoding.{option.name}: " in str(error)
        assert f"on {server.name}: " in str(error)
        assert not option.support(SourceKind.GAUSSDB, server).is_passed_on
        assert expected[which] is None
    else:
        assert told.get(option.name) == expected[which]
        start_command(config.slot, 0, told)


def test_a_landing_is_sent_by_lsn(tmp_path: Path) -> None:
    """In CSN order a confirmed position could lie above commits that are still to come."""
    config = configured(tmp_path, f"{PARALLEL}, output-order: 1")
    for server in (GAUSSDB, OPENGAUSS):
        assert "output-order" not in server_options(StreamRequest.of(config), server)
    several = configured(tmp_path, f"{PARALLEL}, output-order: 1, logical-receiver-num: 2")
    options = server_options(StreamRequest.of(several), GAUSSDB)
    assert "logical-receiver-num" not in options  # the server takes it by CSN only
    told = server_options(StreamRequest.of(config), GAUSSDB, is_landing=False)
    assert told["output-order"] == "1"


def test_a_landing_by_csn_is_sent_empty_transactions(tmp_path: Path) -> None:
    """They tell how far the stream of a quiet server is; the daemon leaves them out."""
    config = configured(tmp_path, f"{PARALLEL}, output-order: 1, skip-empty-xacts: true")
    for server in (GAUSSDB, OPENGAUSS):
        assert server_options(StreamRequest.of(config), server)["skip-empty-xacts"] == "false"
    assert config.decoding.skip_empty_xacts


def test_serial_decoding_is_asked_for_in_so_many_words(tmp_path: Path) -> None:
    """The server's default can be changed, so 1 is said too; parallel options are not."""
    config = configured(tmp_path)
    assert server_options(StreamRequest.of(config), OPENGAUSS) == {
        "include-timestamp": "true",
        "parallel-decode-num": "1",
    }


def test_parallel_decoding_says_style_and_batch(tmp_path: Path) -> None:
    """A landing asks for batches where the configuration is silent."""
    config = configured(tmp_path, PARALLEL)
    told = server_options(StreamRequest.of(config), OPENGAUSS_3)
    assert told == {
        "include-timestamp": "true",
        "parallel-decode-num": "4",
        "decode-style": "b",
        "sending-batch": "1",
    }
    assert start_command("orders", 0x16B374D848, told) == (
        'START_REPLICATION SLOT "orders" LOGICAL 16/B374D848 ("include-timestamp" \'true\', '
        "\"parallel-decode-num\" '4', \"decode-style\" 'b', \"sending-batch\" '1')"
    )


@pytest.mark.parametrize("style", ["b", "t", "j"])
@pytest.mark.parametrize("batch", [None, 0, 1])
@pytest.mark.parametrize("is_landing", [True, False], ids=["landing", "peek"])
def test_text_lands_in_batches_only(
    style: str, batch: int | None, is_landing: bool, tmp_path: Path
) -> None:
    """Unbatched text does not say where a commit ends; peek may have it all the same."""
    given = f"{PARALLEL}, decode-style: {style}"
    given += "" if batch is None else f", sending-batch: {batch}"
    config = configured(tmp_path, given)
    wanted = batch != 0 or (is_landing and style != "b")
    assert is_batched(StreamRequest.of(config), is_landing=is_landing) is wanted
    told = server_options(StreamRequest.of(config), OPENGAUSS, is_landing=is_landing)
    assert told["sending-batch"] == str(int(wanted))
    assert told["decode-style"] == stream_style(StreamRequest.of(config)) == style


@pytest.mark.parametrize(
    ("plugin", "decoding", "style"),
    [
        ("mppdb_decoding", "", "s"),
        ("sql_decoding", "", "q"),
        ("mppdb_decoding", PARALLEL, "b"),
        ("sql_decoding", PARALLEL, "b"),
        ("parallel_json_decoding", PARALLEL, "j"),
        ("parallel_text_decoding", PARALLEL, "t"),
        ("parallel_binary_decoding", PARALLEL, "b"),
        ("parallel_json_decoding", f"{PARALLEL}, decode-style: t", "t"),
    ],
)
def test_plugin_and_mode_say_the_style(
    plugin: str, decoding: str, style: str, tmp_path: Path
) -> None:
    """As the product has it; a style that is set wins."""
    assert stream_style(StreamRequest.of(configured(tmp_path, decoding, plugin))) == style


def test_sql_decoding_knows_four_options(tmp_path: Path) -> None:
    """The daemon does the rest, and what only the server could do is refused."""
    given = "include-xids: false, white-table-list: a.b, max-txn-in-memory: 1"
    config = configured(tmp_path, given, "sql_decoding")
    assert server_options(StreamRequest.of(config), OPENGAUSS) == {
        "include-xids": "false",
        "include-timestamp": "true",
    }
    with pytest.raises(ConfigError, match=r"decoding.standby-connection: sql_decoding has no such"):
        configured(tmp_path, "standby-connection: true", "sql_decoding")


def test_parallel_plugins_need_parallel_decoding(tmp_path: Path) -> None:
    """Nobody says what they send serially."""
    with pytest.raises(ConfigError, match=r"source.plugin: parallel_json_decoding needs decoding"):
        configured(tmp_path, "", "parallel_json_decoding")


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ([], ""),
        ([("public", "t1"), ("*", "t2"), ("s", "*")], "public.t1,*.t2,s.*"),
        ([("*", "t2"), ("s", "*"), ("public", "t1"), ("a", "b*")], "public.t1,a.b*,*.t2,s.*"),
        ([("public", "odd(name)")], "public.odd(name)"),
        ([("public", "odd(name"), ("public", "b)"), ("a", "b")], "a.b,public.*"),
        ([("odd(", "t1"), ("a", "b")], ""),
        ([("s", "t" * 63)] * 30, "s." + "t" * 63),
        ([("s", f"{number:060}") for number in range(30)], "s.*"),
        ([(f"{number:060}", "t") for number in range(30)], ""),
    ],
    ids=["empty", "plain", "any last", "balanced", "name", "schema", "twice", "long", "too long"],
)
def test_the_servers_white_list_is_never_narrower(
    tables: list[tuple[str, str]], expected: str
) -> None:
    """What the command cannot hold is widened, and filtered by the daemon."""
    assert server_white_list(tables) == expected


_NAMES = st.text(st.characters(exclude_characters=" '\".,*\0", codec="utf-8"), min_size=1)


@given(st.lists(st.tuples(_NAMES, _NAMES), max_size=12))
def test_any_white_list_makes_a_command(tables: list[tuple[str, str]]) -> None:
    """Brackets, long names and long lists: the command passes the server's pre-parser."""
    told = {"white-table-list": server_white_list(tables), "parallel-decode-num": "4"}
    command = start_command("orders", 0, told)
    assert is_balanced(command)
    assert len(command.encode()) <= MAX_COMMAND_BYTES


@pytest.mark.parametrize("value", ["a(b", "a)b", ")(", "eve\0"])
def test_a_value_that_breaks_the_command_is_refused(value: str) -> None:
    """Before it is sent: the server's own answer would name nothing and end the connection."""
    with pytest.raises(ConfigError):
        start_command("orders", 0, {"exclude-users": value})


def test_memory_above_what_opengauss_takes_is_refused_when_it_is_known(tmp_path: Path) -> None:
    """GaussDB takes a share of its memory, openGauss 100 at most."""
    config = configured(tmp_path, f"{PARALLEL}, max-txn-in-memory: 500")
    assert server_options(StreamRequest.of(config), GAUSSDB)["max-txn-in-memory"] == "500"
    with pytest.raises(ConfigError, match=r"orders.yaml: decoding.max-txn-in-memory: 500 is not"):
        server_options(StreamRequest.of(config), OPENGAUSS)


def test_a_parallel_stream_does_not_advance_by_itself(tmp_path: Path) -> None:
    """The positions that its server tells lie ahead of what it has sent."""
    with pytest.raises(ConfigError, match=r"decoding.auto-advance: true is possible with parallel"):
        configured(tmp_path, f"{PARALLEL}, auto-advance: true")
    configured(tmp_path, f"{PARALLEL}, auto-advance: false")


def test_switches_take_numbers_as_the_product_does(tmp_path: Path) -> None:
    """1 and 0, for every option that is true or false."""
    assert configured(tmp_path, "standby-connection: 1").decoding.standby_connection is True
    assert configured(tmp_path, "standby-connection: 0").decoding.standby_connection is False
    with pytest.raises(ConfigError, match="standby-connection: 2 is not a boolean"):
        configured(tmp_path, "standby-connection: 2")


def test_names_of_slots_are_lowered(tmp_path: Path) -> None:
    """As the server reads a name without quotes."""
    path = configured(tmp_path).path
    path.write_text(path.read_text().replace("slot: orders", "slot: Orders"))
    assert load(path, memory_bytes=8 * GIB).slot == "orders"
