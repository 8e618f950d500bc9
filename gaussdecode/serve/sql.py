"""Read the few statements that are served: commands of replication, and a little SQL. No SQL engine.

A statement becomes tokens, and these one of the classes below. What is not served raises SQLSTATE 0A000, what
is no statement 42601.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Final

from gaussdecode.model.lsn import Lsn
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.messages import MAX_COUNT, Column

SERVED: Final = (
    "Served are the commands of replication (IDENTIFY_SYSTEM, CREATE_REPLICATION_SLOT, START_REPLICATION and others), "
    "SELECT ... FROM pg_logical_slot_peek_changes and its relatives, functions of slots, pg_replication_slots, "
    "SHOW and SET. With serve.catalog-dsn, the database answers other SELECTs."
)
_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<lsn>[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}(?![0-9A-Za-z_]))
    |(?P<escaped>[eE]'(?:[^'\\]|''|\\.)*')
    |(?P<string>'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")*")
    |(?P<number>[0-9]+(?:\.[0-9]+)?)
    |(?P<param>\$[0-9]+)
    |(?P<word>[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*)
    |(?P<op>::|=>|:=|<>|!=|>=|<=|[-+*/%<>=(),.;:~!@#^&|?\[\]])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_MOST_TOKENS: Final = 10_000  # arbitrary; with spaces and comments
_MOST_TEXT: Final = 1 << 20  # characters of a statement; arbitrary


def not_served(what: str) -> ServeError:
    """This server does not carry that out."""
    return ServeError("0A000", f"{what} is not served here", SERVED)


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """A part of a statement.

    Attributes:
        kind: ``word``, ``quoted``, ``string``, ``number``, ``param``, ``lsn``, ``op`` or ``end``.
        text: names in lower case unless they were quoted; strings without quotes.
    """

    kind: str
    text: str


def tokens_of(text: str) -> list[Token]:
    """Cut a text into tokens.

    Raises:
        ServeError: it has a character, or a quote, that no statement has, or is too long.
    """
    found: list[Token] = []
    for kind, value in pieces_of(text):
        if kind == "escaped":
            inner = re.sub(
                r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), value[2:-1], flags=re.DOTALL
            )
            found.append(Token("string", inner.replace("''", "'")))
        elif kind == "string":
            found.append(Token(kind, value[1:-1].replace("''", "'")))
        elif kind == "quoted":
            found.append(Token(kind, value[1:-1].replace('""', '"')))
        elif kind == "word":
            found.append(Token(kind, value.lower()))
        elif kind != "space":
            found.append(Token(kind, value))
    return found


def parameter_number(token: Token) -> int:
    """Number of a parameter such as ``$1``.

    Raises:
        ServeError: no statement can have it.
    """
    digits = token.text[1:].lstrip("0")
    if not 1 <= len(digits) <= 4 or int(digits) > MAX_COUNT:
        raise ServeError("42P02", f"there is no parameter {token.text[:16]}")
    return int(digits)


def pieces_of(text: str) -> list[tuple[str, str]]:
    """Cut a text into pieces that make it up again: kinds of tokens, or ``space``, and the texts as given.

    Raises:
        ServeError: it has a character, or a quote, that no statement has, or is too long.
    """
    found: list[tuple[str, str]] = []
    at = 0
    if len(text) > _MOST_TEXT:
        raise ServeError("54000", f"a statement is longer than {_MOST_TEXT} characters")
    while at < len(text):
        if len(found) >= _MOST_TOKENS:
            raise ServeError("54000", f"statements have more than {_MOST_TOKENS} words and signs")
        match = _TOKEN.match(text, at)
        # A comment without its end: each "/*" would be looked for to the end of the text.
        if match is None or (match[0] == "/" and text.startswith("/*", at)):
            raise ServeError("42601", f"syntax error at character {at + 1}", SERVED)
        at = match.end()
        found.append((str(match.lastgroup), match[0]))
    return found


def statements_of(text: str) -> list[list[Token]]:
    """Cut a text into statements, without their semicolons."""
    statements: list[list[Token]] = [[]]
    for token in tokens_of(text):
        if token == Token("op", ";"):
            statements.append([])
        else:
            statements[-1].append(token)
    return [statement for statement in statements if statement]


class Reader:
    """A read pointer in tokens.

    Args:
        tokens: of one statement.
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._next = 0

    @property
    def token(self) -> Token:
        """The present token."""
        return self._tokens[self._next] if self._next < len(self._tokens) else Token("end", "")

    def take(self) -> Token:
        """Step over the present token."""
        token = self.token
        self._next += 1
        return token

    def has(self, *words: str) -> bool:
        """Step over words, or signs, if they stand here."""
        here = self._tokens[self._next : self._next + len(words)]
        if [token.text for token in here if token.kind in {"word", "op"}] != list(words):
            return False
        self._next += len(words)
        return True

    def peek(self, text: str, ahead: int = 0) -> bool:
        """Whether a word or sign stands here."""
        at = self._next + ahead
        if at >= len(self._tokens):
            return False
        token = self._tokens[at]
        return token.kind in {"word", "op"} and token.text == text

    def need(self, *words: str) -> None:
        """Step over words, or signs, that must stand here."""
        if not self.has(*words):
            raise self.error()

    def of(self, *kinds: str) -> str:
        """Step over a token of one of some kinds."""
        if self.token.kind not in kinds:
            raise self.error()
        return self.take().text

    def name(self) -> str:
        """Step over a name."""
        return self.of("word", "quoted")

    def end(self) -> None:
        """See that the statement ends here."""
        if self.token.kind != "end":
            raise self.error()

    def error(self) -> ServeError:
        """A syntax error at the present token; strings are not shown, they may be a row's value."""
        token = self.token
        where = {"end": "end of input", "string": "a string"}.get(
            token.kind, f'"{token.text[:64]}"'
        )
        return ServeError("42601", f"syntax error at or near {where}", SERVED)


# ---- commands of replication ---------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class IdentifySystem:
    """IDENTIFY_SYSTEM."""


@dataclasses.dataclass(frozen=True, slots=True)
class CreateSlot:
    """CREATE_REPLICATION_SLOT.

    Attributes:
        name: of the slot.
        plugin: output plug-in.
        is_temporary: it ends with the session.
        two_phase: send prepared transactions at their PREPARE.
    """

    name: str
    plugin: str
    is_temporary: bool = False
    two_phase: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class DropSlot:
    """DROP_REPLICATION_SLOT."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class ReadSlot:
    """READ_REPLICATION_SLOT."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class StartReplication:
    """START_REPLICATION of a logical slot.

    Attributes:
        name: of the slot.
        lsn: where to begin.
        options: of the plug-in; None where one has no value.
    """

    name: str
    lsn: int
    options: dict[str, str | None]


Command = IdentifySystem | CreateSlot | DropSlot | ReadSlot | StartReplication


def parse_command(tokens: Sequence[Token]) -> Command | None:
    """Read a command of replication; None where it is none.

    Raises:
        ServeError: it is one, and wrong or not served.
    """
    reader = Reader(tokens)
    word = reader.take()
    parse = _COMMANDS.get(word.text) if word.kind == "word" else None
    if parse is not None:
        command = parse(reader)
        reader.end()
        return command
    if word.kind == "word" and word.text in _NOT_SERVED:
        raise not_served(word.text.upper())
    return None


def _identify(_reader: Reader) -> Command:
    return IdentifySystem()


def _create(reader: Reader) -> Command:
    name = reader.name()
    is_temporary = reader.has("temporary")
    if reader.has("physical"):
        raise not_served("a physical replication slot")
    reader.need("logical")
    plugin = reader.name()
    options: dict[str, str | None] = {}
    if reader.token.text == "(" and reader.token.kind == "op":
        options = _options(reader, separators=True)
    while reader.token.kind == "word":
        options[reader.take().text] = None
    if options.pop("snapshot", "nothing") == "use" or "use_snapshot" in options:
        raise not_served("a snapshot of the source")
    if options.pop("failover", "false") not in {"false", "off", "0"}:
        raise not_served("failover of a slot")
    two_phase = options.pop("two_phase", "false") not in {"false", "off", "0"}
    for known in ("export_snapshot", "noexport_snapshot", "reserve_wal"):
        options.pop(known, None)
    if options:
        raise not_served(f"option {min(options)} of CREATE_REPLICATION_SLOT")
    return CreateSlot(name, plugin, is_temporary, two_phase)


def _drop(reader: Reader) -> Command:
    name = reader.name()
    reader.has("wait")
    return DropSlot(name)


def _read(reader: Reader) -> Command:
    return ReadSlot(reader.name())


def _start(reader: Reader) -> Command:
    if not reader.has("slot"):
        raise not_served("physical replication")
    name = reader.name()
    if reader.has("physical"):
        raise not_served("physical replication")
    reader.need("logical")
    if reader.token.kind != "lsn":
        raise reader.error()
    lsn = Lsn.parse(reader.take().text)
    options: dict[str, str | None] = {}
    if reader.peek("("):
        options = _options(reader, separators=True)
    return StartReplication(name, lsn, options)


def _options(reader: Reader, *, separators: bool) -> dict[str, str | None]:
    """Read ``(name ['value'], ...)``."""
    found: dict[str, str | None] = {}
    reader.need("(")
    while True:
        name = reader.name()
        value: str | None = None
        if reader.token.kind in {"string", "number", "word", "quoted"}:
            value = reader.take().text
        if name in found:
            raise ServeError("42601", f'option "{name[:64]}" is given twice')
        found[name] = value
        if not (separators and reader.has(",")):
            break
    reader.need(")")
    return found


_COMMANDS: Final = {
    "identify_system": _identify,
    "create_replication_slot": _create,
    "drop_replication_slot": _drop,
    "read_replication_slot": _read,
    "start_replication": _start,
}
_NOT_SERVED: Final = frozenset(
    {"base_backup", "timeline_history", "alter_replication_slot", "upload_manifest"}
)


# ---- SQL -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """A constant, or a parameter.

    Attributes:
        text: of a constant; None for NULL.
        parameter: number from 1, or 0 for a constant.
        type: ``text``, ``number`` or ``bool``, or a name that it is cast to.
    """

    text: str | None
    parameter: int = 0
    type: str = "text"


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A call of a function, with its arguments in order or by name."""

    name: str
    arguments: tuple[Value, ...]
    named: tuple[tuple[str, Value], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """What a SELECT shows.

    Attributes:
        expression: a value, a call, or the name of a column; ``*`` for all.
        alias: its name in the answer; empty for its own.
    """

    expression: Value | Call | str
    alias: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """``column operator value``; the operator is one of ``= <> is-null is-not-null``."""

    column: str
    operator: str
    value: Value


@dataclasses.dataclass(frozen=True, slots=True)
class Select:
    """A SELECT from nothing, from a view or from a function."""

    items: tuple[Item, ...]
    source: Call | str | None = None
    conditions: tuple[Condition, ...] = ()
    order: tuple[tuple[str, bool], ...] = ()
    limit: Value | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Show:
    """SHOW."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Set:
    """SET or RESET; value None for the default."""

    name: str
    value: str | None
    tag: str = "SET"


@dataclasses.dataclass(frozen=True, slots=True)
class Plain:
    """A statement that changes nothing here, with its tag: BEGIN, COMMIT and others."""

    tag: str


@dataclasses.dataclass(frozen=True, slots=True)
class Forwarded:
    """A SELECT that the source's catalogue answers.

    Attributes:
        text: as it is sent there.
        types: OIDs of the types of its parameters.
        columns: of the answer.
    """

    text: str
    types: tuple[int, ...]
    columns: tuple[Column, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """A SELECT whose answer is known already."""

    columns: tuple[Column, ...]
    rows: tuple[Sequence[str | int | bool | None], ...]


Statement = Select | Show | Set | Plain | Forwarded | Known
_TRANSACTION: Final = {
    "begin": "BEGIN",
    "start": "START TRANSACTION",
    "commit": "COMMIT",
    "end": "COMMIT",
    "rollback": "ROLLBACK",
    "abort": "ROLLBACK",
    "discard": "DISCARD ALL",
}
_AFTER_ITEM: Final = frozenset({"from", "where", "order", "limit", "as", "group", "union", "and"})


def parse_sql(tokens: Sequence[Token]) -> Statement:
    """Read a statement.

    Raises:
        ServeError: it is not served, or no statement.
    """
    reader = Reader(tokens)
    word = reader.token
    if word.kind != "word":
        raise reader.error()
    if word.text == "select":
        reader.take()
        return _select(reader)
    if word.text == "show":
        reader.take()
        return Show(_setting(reader))
    if word.text in {"set", "reset"}:
        return _set(reader)
    if word.text in _TRANSACTION:
        return Plain(_TRANSACTION[word.text])
    raise not_served(word.text.upper()[:64])


def _setting(reader: Reader) -> str:
    for words, name in (
        (("transaction", "isolation", "level"), "transaction_isolation"),
        (("time", "zone"), "timezone"),
        (("session", "authorization"), "session_authorization"),
    ):
        if reader.has(*words):
            return name
    name = reader.name()
    while reader.has("."):
        name += f".{reader.name()}"
    reader.end()
    return name.lower()


def _set(reader: Reader) -> Statement:
    if reader.take().text == "reset":
        return Set(_setting(reader), None, "RESET")
    reader.has("session") or reader.has("local")
    if reader.has("transaction") or reader.has("characteristics"):
        return Plain("SET")
    if reader.has("time", "zone"):
        name = "timezone"
    elif reader.has("names"):
        name = "client_encoding"
    else:
        name = reader.name().lower()
        while reader.has("."):
            name += f".{reader.name()}"
        if not (reader.has("=") or reader.has("to")):
            raise reader.error()
    parts = []
    while reader.token.kind != "end":
        sign = "-" if reader.has("-") else ""
        parts.append(sign + reader.of("word", "quoted", "string", "number", "lsn"))
        if not reader.has(","):
            break
    reader.end()
    value = ", ".join(parts)
    return Set(name, None if value == "default" else value)


def _select(reader: Reader) -> Select:
    items = [_item(reader)]
    while reader.has(","):
        items.append(_item(reader))
    source: Call | str | None = None
    if reader.has("from"):
        source = _source(reader)
    conditions = []
    if reader.has("where"):
        conditions.append(_condition(reader))
        while reader.has("and"):
            conditions.append(_condition(reader))
    order = []
    if reader.has("order", "by"):
        order.append(_ordering(reader))
        while reader.has(","):
            order.append(_ordering(reader))
    limit = None
    if reader.has("limit"):
        limit = _value(reader)
    if reader.token.kind != "end":
        raise not_served(f"a SELECT with {reader.token.text[:64].upper()}")
    return Select(tuple(items), source, tuple(conditions), tuple(order), limit)


def _item(reader: Reader) -> Item:
    if reader.has("*"):
        return Item("*")
    expression = _expression(reader)
    alias = ""
    if reader.has("as") or (
        reader.token.kind in {"word", "quoted"} and reader.token.text not in _AFTER_ITEM
    ):
        alias = reader.name()
    return Item(expression, alias)


def _expression(reader: Reader) -> Value | Call | str:
    token = reader.token
    is_name = token.kind == "quoted" or (
        token.kind == "word" and token.text not in {"null", "true", "false"}
    )
    if not is_name:
        return _value(reader)
    name = _qualified(reader)
    found: Call | str = name
    if reader.peek("("):
        found = _call(reader, name)
    elif token.kind == "word" and name in {"current_user", "session_user", "current_catalog"}:
        found = Call(name, ())
    _cast(reader)
    return found


def _qualified(reader: Reader) -> str:
    """A name; of ``schema.name`` and ``alias.column`` the last part."""
    name = reader.name()
    while reader.has("."):
        if reader.has("*"):
            return "*"
        name = reader.name()
    return name


def _call(reader: Reader, name: str) -> Call:
    reader.need("(")
    arguments: list[Value] = []
    named: list[tuple[str, Value]] = []
    while not reader.has(")"):
        if reader.has("*"):
            continue
        is_variadic = reader.has("variadic")
        if reader.peek("=>", 1) or reader.peek(":=", 1):
            key = reader.name()
            reader.take()
            named.append((key, _value(reader)))
        elif is_variadic and reader.has("array", "["):
            while not reader.has("]"):
                arguments.append(_value(reader))
                reader.has(",")
            _cast(reader)
        elif is_variadic:
            value = _value(reader)
            arguments.append(dataclasses.replace(value, type="text[]"))
        else:
            arguments.append(_value(reader))
        if not reader.peek(")"):
            reader.need(",")
    return Call(name, tuple(arguments), tuple(named))


def _value(reader: Reader) -> Value:
    sign = "-" if reader.has("-") else ""
    token = reader.take()
    if token.kind == "param":
        found = Value(None, parameter_number(token))
    elif token.kind == "number":
        found = Value(sign + token.text, type="number")
    elif token.kind == "string":
        found = Value(token.text)
    elif token.kind == "word" and token.text == "null":
        found = Value(None)
    elif token.kind == "word" and token.text in {"true", "false"}:
        found = Value(token.text, type="bool")
    elif token.kind == "word" and reader.token.kind == "string":  # pg_lsn '0/0'
        found = Value(reader.take().text, type=token.text)
    else:
        raise not_served("an expression other than a constant, a parameter or a call")
    cast = _cast(reader)
    return dataclasses.replace(found, type=cast) if cast else found


def _cast(reader: Reader) -> str:
    cast = ""
    while reader.has("::"):
        cast = _qualified(reader)
        if reader.has("["):
            reader.need("]")
            cast += "[]"
        elif reader.has("("):
            reader.of("number")
            reader.need(")")
    return cast


def _source(reader: Reader) -> Call | str:
    name = _qualified(reader)
    found: Call | str = _call(reader, name) if reader.peek("(") else name
    if reader.has("as") or (
        reader.token.kind in {"word", "quoted"} and reader.token.text not in _AFTER_ITEM
    ):
        reader.name()
        if reader.has("("):
            raise not_served("a list of columns after an alias")
    return found


def _condition(reader: Reader) -> Condition:
    column = _qualified(reader)
    _cast(reader)
    if reader.has("is", "not", "null"):
        return Condition(column, "is-not-null", Value(None))
    if reader.has("is", "null"):
        return Condition(column, "is-null", Value(None))
    for sign in ("=", "<>", "!="):
        if reader.has(sign):
            return Condition(column, "=" if sign == "=" else "<>", _value(reader))
    raise not_served("a condition other than =, <> and IS NULL")


def _ordering(reader: Reader) -> tuple[str, bool]:
    name = reader.of("word", "quoted", "number")
    while reader.has("."):
        name = reader.name()
    is_falling = reader.has("desc")
    if not is_falling:
        reader.has("asc")
    return name, is_falling
