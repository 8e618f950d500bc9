"""Commands: what the server's pre-parser would take, and what not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.vectors import meaning, vector_bytes

from gaussdecode.errors import ConfigError
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.gaussdb import commands, messages

VECTOR_OPTIONS = {
    "parallel-decode-num": "4",
    "decode-style": "b",
    "sending-batch": "1",
    "skip-empty-xacts": "true",
    "white-table-list": "public.t1,public.t2",
}


def test_start_vector() -> None:
    """Q01, byte for byte."""
    command = commands.start_replication("slot1", Lsn(0), VECTOR_OPTIONS)
    assert command == meaning("Q01")["sql"]
    assert messages.query(command) == vector_bytes("Q01")


def test_start_without_options() -> None:
    """No brackets then."""
    command = commands.start_replication("s", Lsn(0x1_0000_00FF), {})
    assert command == 'START_REPLICATION SLOT "s" LOGICAL 1/FF'


@pytest.mark.parametrize("name", ["a", "0", "a_b?c.d-e", "x" * 63, "..."])
def test_slot_names(name: str) -> None:
    """All that the server takes."""
    assert commands.slot_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "A", "ä", "a b", 'a"', ".", "..", "gs_roach_x", "x" * 64, "a\n"]
)
def test_wrong_slot_names(name: str) -> None:
    """And nothing else."""
    with pytest.raises(ConfigError, match="must be 1 to 63"):
        commands.slot_name(name)


@pytest.mark.parametrize("text", ["'", '"', "(", ")", "a'b", "((", "())", '("")', "\"'\"'"])
def test_unbalanced_values_are_refused_here(text: str) -> None:
    """The server counts inside of values too, and would end the session."""
    options = {"white-table-list": text}
    quoted = f"({commands.literal(text)})"
    if commands.is_balanced(quoted):
        commands.start_replication("s", Lsn(0), options)
    else:
        with pytest.raises(ConfigError, match="unbalanced"):
            commands.start_replication("s", Lsn(0), options)


@pytest.mark.parametrize(
    ("command", "is_balanced"),
    [
        ("", True),
        ("a 'b' (c)", True),
        ("'a''b'", True),
        ("'a", False),
        ("(", False),
        (")", False),
        ("'(' )", False),
        ("'()'", True),
        ("'\"\"'", True),
        ("'\"'", False),
        ("')'", False),
        ("(" * 99 + ")" * 99, True),
        ("(" * 100 + ")" * 100, False),
    ],
)
def test_balance_is_what_the_servers_stack_says(command: str, is_balanced: bool) -> None:
    """One stack, no strings, and its bound."""
    assert commands.is_balanced(command) is is_balanced


@given(st.text(alphabet="ab'\"()", max_size=12))
def test_doubling_keeps_a_value_in_one_piece(text: str) -> None:
    """A value that passes is read back by a parser that knows doubled quotes."""
    quoted = commands.literal(text)
    assert quoted[0] == quoted[-1] == "'"
    assert quoted[1:-1].replace("''", "") == text.replace("'", "")
    assert quoted[1:-1].replace("''", "'") == text


def test_longest_command_is_taken_and_one_byte_more_is_not() -> None:
    """The server refuses 1024 bytes, with a text about slot names."""
    room = commands.MAX_COMMAND_BYTES - len(
        commands.start_replication("s", Lsn(0), {"white-table-list": ""})
    )
    commands.start_replication("s", Lsn(0), {"white-table-list": "x" * room})
    with pytest.raises(ConfigError, match="at most 1023"):
        commands.start_replication("s", Lsn(0), {"white-table-list": "x" * (room + 1)})
    with pytest.raises(ConfigError, match="at most 1023"):
        commands.start_replication("s", Lsn(0), {"white-table-list": "é" * (room // 2 + 1)})


@pytest.mark.parametrize("name", ["", "A", 'a"', "a b", "-a"])
def test_option_names_need_no_escape(name: str) -> None:
    """Inside of double quotes the server has none."""
    with pytest.raises(ConfigError, match="name of an option"):
        commands.start_replication("s", Lsn(0), {name: "1"})


def test_nul_is_refused() -> None:
    """It would end the command early."""
    with pytest.raises(ConfigError, match="NUL"):
        commands.literal("a\0")


@pytest.mark.parametrize(
    ("text", "quoted"), [("a", "'a'"), ("it's", "'it''s'"), ("a\\b'", "E'a\\\\b'''")]
)
def test_sql_literals_mean_themselves(text: str, quoted: str) -> None:
    """Also where a backslash is an escape."""
    assert commands.sql_literal(text) == quoted
