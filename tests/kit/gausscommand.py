"""The replication commands of openGauss and the options of START_REPLICATION, as it reads them.

Keywords are case-sensitive; what begins with another word is SQL. Before its grammar looks
at a command the server checks that quotes and parentheses balance, inside values too.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Final

from kit.gaussdecoder import WhiteList
from kit.gaussprofile import Profile

MAX_COMMAND_BYTES: Final = 1023
_STACK: Final = 100
_TOKEN: Final = re.compile(
    r"""\s*(?:"(?P<quoted>[^"]*)"|'(?P<text>(?:[^']|'')*)'|(?P<lsn>[0-9A-Fa-f]+/[0-9A-Fa-f]+)"""
    r"""|(?P<word>[A-Za-z_0-9?.\-]+)|(?P<mark>[(),;]))""",
    re.DOTALL,
)
_SLOT_NAME: Final = re.compile(r"[a-z0-9_?.\-]+")
_COMMANDS: Final = frozenset(
    ("IDENTIFY_SYSTEM", "CREATE_REPLICATION_SLOT", "DROP_REPLICATION_SLOT", "START_REPLICATION",
     "ADVANCE_REPLICATION", "ADVANCE_CATALOG_XMIN", "IDENTIFY_VERSION", "IDENTIFY_MODE")
)  # fmt: skip
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_UNITS: Final = {"": 1, "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class CommandError(Exception):
    """The server refuses.

    Attributes:
        message: of the ErrorResponse.
        sqlstate: of it.
        hint: of it, or empty.
    """

    def __init__(self, message: str, sqlstate: str = "22023", hint: str = "") -> None:
        super().__init__(message, sqlstate, hint)
        self.message = message
        self.sqlstate = sqlstate
        self.hint = hint


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """One replication command.

    Attributes:
        name: its first keyword.
        slot: name, where there is one.
        plugin: of CREATE_REPLICATION_SLOT; None for a physical slot.
        lsns: positions in the order they stand.
        options: of START_REPLICATION; None for a name without value.
        flags: USE_SNAPSHOT, WAIT.
    """

    name: str
    slot: str = ""
    plugin: str | None = None
    lsns: tuple[int, ...] = ()
    options: tuple[tuple[str, str | None], ...] = ()
    flags: frozenset[str] = frozenset()


def check_balance(text: str) -> None:
    """Do what the server's pre-parser does.

    Raises:
        CommandError: quotes or parentheses do not balance.
    """
    if len(text.encode()) > MAX_COMMAND_BYTES:
        raise CommandError("replication command, syntax error.", "42601")
    stack: list[str] = []
    for char in text:
        if char in "'\"":
            if stack and stack[-1] == char:
                stack.pop()
            else:
                stack.append(char)
        elif char == "(":
            stack.append(char)
        elif char == ")" and (not stack or stack.pop() != "("):
            raise CommandError("replication command, syntax error.", "42601")
        if len(stack) > _STACK:
            raise CommandError("replication command, syntax error.", "42601")
    if stack:
        raise CommandError("replication command, syntax error.", "42601")


def parse(text: str) -> Command | None:
    """Read a command; None when it is SQL.

    Raises:
        CommandError: it is a replication command and wrong.
    """
    check_balance(text)
    words = text.split(maxsplit=1)
    first = words[0].rstrip(";") if words else ""
    if first not in _COMMANDS:
        return None
    tokens = _Tokens(text)
    tokens.word(first)
    parser = _PARSERS.get(first, _plain)
    command = parser(first, tokens)
    tokens.finish()
    return command


class _Tokens:
    """The words of a command."""

    def __init__(self, text: str) -> None:
        self._items: list[tuple[str, str]] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                raise CommandError("syntax error", "42601")
            self._items.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()
        self._at = 0

    def peek(self) -> tuple[str, str]:
        """Look at the next token."""
        return self._items[self._at] if self._at < len(self._items) else ("end", "")

    def take(self, *kinds: str) -> str:
        """Take a token of one of these kinds."""
        kind, text = self.peek()
        if kind not in kinds:
            raise CommandError("syntax error", "42601")
        self._at += 1
        return text

    def word(self, *choices: str) -> str:
        """Take one of these keywords."""
        text = self.take("word")
        if text not in choices:
            raise CommandError("syntax error", "42601")
        return text

    def skip(self, kind: str, text: str) -> bool:
        """Step over a token if it stands here."""
        if self.peek() != (kind, text):
            return False
        self._at += 1
        return True

    def lsn(self) -> int:
        """Take a position."""
        high, low = self.take("lsn").split("/")
        return int(high, 16) << 32 | int(low, 16)

    def option(self) -> str:
        """Take an option's name; one with a hyphen must be quoted."""
        if self.peek()[0] == "word" and "-" in self.peek()[1]:
            raise CommandError("syntax error", "42601")
        return self.take("quoted", "word")

    def slot(self) -> str:
        """Take a slot's name and check it."""
        name = self.take("word", "quoted")
        check_slot_name(name)
        return name

    def finish(self) -> None:
        """Step over a semicolon; nothing may follow."""
        self.skip("mark", ";")
        if self.peek()[0] != "end":
            raise CommandError("syntax error", "42601")


def check_slot_name(name: str) -> None:
    """Do what the server does before it uses a slot's name.

    Raises:
        CommandError: it is none.
    """
    if len(name) >= 64:
        raise CommandError("replication slot name should be shorter than 64.", "42602")
    if not _SLOT_NAME.fullmatch(name) or name in (".", "..") or name.startswith("gs_roach"):
        raise CommandError(f'replication slot name "{name}" contains invalid character', "42602")


def _plain(name: str, _tokens: _Tokens) -> Command:
    return Command(name)


def _create(name: str, tokens: _Tokens) -> Command:
    slot = tokens.slot()
    if tokens.word("LOGICAL", "PHYSICAL") == "PHYSICAL":
        return Command(name, slot, lsns=(tokens.lsn(),))
    plugin = tokens.take("word", "quoted")
    if "/" in plugin:
        raise CommandError(f'plugin name "{plugin}" contains invalid character', "42602")
    uses = tokens.skip("word", "USE_SNAPSHOT")
    return Command(name, slot, plugin, flags=frozenset(("USE_SNAPSHOT",)) if uses else frozenset())


def _drop(name: str, tokens: _Tokens) -> Command:
    slot = tokens.slot()
    waits = tokens.skip("word", "WAIT")
    return Command(name, slot, flags=frozenset(("WAIT",)) if waits else frozenset())


def _advance(name: str, tokens: _Tokens) -> Command:
    tokens.word("SLOT")
    slot = tokens.slot()
    tokens.word("LOGICAL")
    count = 2 if name == "ADVANCE_REPLICATION" else 1
    return Command(name, slot, lsns=tuple(tokens.lsn() for _ in range(count)))


def _start(name: str, tokens: _Tokens) -> Command:
    tokens.word("SLOT")
    slot = tokens.slot()
    tokens.word("LOGICAL")
    lsn = tokens.lsn()
    options: list[tuple[str, str | None]] = []
    if tokens.skip("mark", "("):
        while True:
            option = tokens.option()
            value = None
            if tokens.peek()[0] == "text":
                value = tokens.take("text").replace("''", "'")
            options.append((option, value))
            if not tokens.skip("mark", ","):
                break
        if not tokens.skip("mark", ")"):
            raise CommandError("syntax error", "42601")
    return Command(name, slot, lsns=(lsn,), options=tuple(options))


_PARSERS: Final[Mapping[str, Callable[[str, _Tokens], Command]]] = {
    "CREATE_REPLICATION_SLOT": _create,
    "DROP_REPLICATION_SLOT": _drop,
    "ADVANCE_REPLICATION": _advance,
    "ADVANCE_CATALOG_XMIN": _advance,
    "START_REPLICATION": _start,
}


# ---- options -----------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class StreamOptions:
    """What a stream was asked for; None where the mode has its own default."""

    parallel_decode_num: int = 1
    decode_style: str | None = None
    sending_batch: int = 0
    parallel_queue_size: int = 128
    include_xids: bool = True
    include_timestamp: bool | None = None
    skip_empty_xacts: bool = False
    only_local: bool = True
    include_originid: bool = False
    include_user: bool = False
    standby_connection: bool = False
    white_table_list: WhiteList = dataclasses.field(default_factory=WhiteList)
    sender_timeout_ms: int | None = None
    enable_heartbeat: bool = False
    exclude_users: frozenset[str] = frozenset()
    skip_generated_columns: bool = False
    timezone_is_utc: bool = False
    enable_ddl_decoding: bool = False
    enable_ddl_json_format: bool = False
    auto_advance: bool = False
    output_order: int = 0
    slice_id: int = -1
    start_position: tuple[int, int] = (0, 0)

    @property
    def is_parallel(self) -> bool:
        """Whether decoder threads do the work."""
        return self.parallel_decode_num > 1


def parse_bool(name: str, value: str) -> bool:
    """Accept what the server's parse_bool accepts: unique prefixes included."""
    low = value.lower()
    for words, result in ((_TRUE, True), (_FALSE, False)):
        for word in words:
            if low and word.startswith(low) and not (word in ("on", "off") and len(low) < 2):
                return result
    raise _unparsed(name, value)


def _unparsed(name: str, value: str | None, hint: str = "") -> CommandError:
    return CommandError(f'could not parse value "{value}" for parameter "{name}"', "22023", hint)


def _unknown(name: str, value: str | None) -> CommandError:
    shown = "(null)" if value is None else value
    return CommandError(f'option "{name}" = "{shown}" is unknown')


def _bool(name: str, value: str) -> object:
    return parse_bool(name, value)


def _whole(low: int, high: int) -> Callable[[str, str], object]:
    def read(name: str, value: str) -> int:
        if not re.fullmatch(r"\s*[+-]?\d+\s*", value) or not low <= int(value) <= high:
            raise _unparsed(name, value, f"Input a number between {low} and {high}.")
        return int(value)

    return read


def _queue(name: str, value: str) -> object:
    size = _whole(2, 1024)(name, value)
    assert isinstance(size, int)
    if size & (size - 1):
        raise CommandError(f'option "{name}" should be a power of two')
    return size


def _style(name: str, value: str) -> object:
    if value[:1] not in ("j", "t", "b"):
        raise _unparsed(name, value)
    return value[:1]


def _timeout(name: str, value: str) -> object:
    match = re.fullmatch(r"(\d+)\s*(ms|s|min|h|d|)", value.strip())
    if match is None or int(match[1]) * _UNITS[match[2]] > 2147483647:
        raise _unparsed(name, value)
    return int(match[1]) * _UNITS[match[2]]


def _text(_name: str, value: str) -> object:
    return value


def _names(_name: str, value: str) -> object:
    return frozenset(item.strip() for item in value.split(",") if item.strip())


def _position(name: str, value: str) -> object:
    """Read a CSN and an LSN, both as plain numbers."""
    match = re.fullmatch(r"(\d{1,20})/(\d{1,20})", value)
    if match is None:
        raise _unparsed(name, value)
    return int(match[1]), int(match[2])


def _no_sequences(name: str, value: str) -> object:
    if parse_bool(name, value):
        raise _unparsed(name, value)
    return False


def white_list(name: str, value: str) -> object:
    """Read a white-table-list: split at commas, then each item at its first dot."""
    if not value.strip():
        return WhiteList()
    items = []
    for item in value.split(","):
        schema, dot, table = item.strip().partition(".")
        if not dot or not schema or not table:
            raise _unparsed(name, value)
        items.append((None if schema == "*" else schema, None if table == "*" else table))
    return WhiteList(tuple(items))


Reader = Callable[[str, str], object]
# Value for a name without one; the reader is then not asked.
_BARE: Final[Mapping[str, object]] = {
    "sending-batch": 0, "parallel-queue-size": 128, "include-xids": True,
    "include-timestamp": False, "skip-empty-xacts": False, "only-local": True,
    "include-originid": False, "standby-connection": False, "white-table-list": WhiteList(),
    "max-txn-in-memory": 0, "max-reorderbuffer-in-memory": 0,
}  # fmt: skip
_GENERAL: Final[Mapping[str, Reader]] = {
    "parallel-decode-num": _whole(1, 20), "include-xids": _bool, "include-timestamp": _bool,
    "skip-empty-xacts": _bool, "only-local": _bool, "standby-connection": _bool,
    "white-table-list": white_list,
}  # fmt: skip
_PARALLEL: Final[Mapping[str, Reader]] = {
    "decode-style": _style, "sending-batch": _whole(0, 1), "parallel-queue-size": _queue,
}  # fmt: skip
_MEMORY: Final[Mapping[str, Reader]] = {
    "max-txn-in-memory": _whole(0, 100), "max-reorderbuffer-in-memory": _whole(0, 100),
    "sender-timeout": _timeout,
}  # fmt: skip
_COMMERCIAL: Final[Mapping[str, Reader]] = {
    "desc-memory-limit": _whole(10, 1024), "include-user": _bool, "exclude-userids": _text,
    "exclude-users": _names, "dynamic-resolution": _bool, "enable-heartbeat": _bool,
    "output-order": _whole(0, 1), "auto-advance": _bool, "skip-generated-columns": _bool,
    "enable-ddl-decoding": _bool, "enable-ddl-json-format": _bool, "timezone-is-utc": _bool,
    "decode-sequence": _no_sequences, "start-position": _position, "slice-id": _whole(-1, 8192),
    "logical-receiver-num": _whole(1, 20),
}  # fmt: skip
_COMMERCIAL_PARALLEL: Final[Mapping[str, Reader]] = {
    "change-log-max-len": _whole(1, 65535), "max-decode-to-sender-cache-num": _whole(1, 65535),
    "max-txn-in-memory": _whole(0, 1 << 20), "max-reorderbuffer-in-memory": _whole(0, 1 << 10),
}  # fmt: skip
# Of the section "Distributed Strong-Consistency Decoding".
_BY_CSN: Final = ("logical-receiver-num", "slice-id", "start-position")
_SQL_PLUGIN: Final = frozenset(
    ("parallel-decode-num", "include-xids", "include-timestamp", "skip-empty-xacts", "only-local")
)


def known_options(profile: Profile, *, is_parallel: bool, plugin: str) -> dict[str, Reader]:
    """The options that a server of this version knows in a mode."""
    known = dict(_GENERAL)
    if is_parallel:
        known |= _PARALLEL
    if profile.has_memory_options or not is_parallel:
        known |= _MEMORY
    if profile.has_originid:
        known["include-originid"] = _bool
    if profile.is_commercial:
        known |= _COMMERCIAL
        if is_parallel:
            known |= _COMMERCIAL_PARALLEL
    if not is_parallel:
        known["force-binary"] = _bool
        if plugin == "sql_decoding":
            known = {name: read for name, read in known.items() if name in _SQL_PLUGIN}
    return known


def is_parallel(given: tuple[tuple[str, str | None], ...]) -> bool:
    """Whether the options choose parallel mode.

    Raises:
        CommandError: the number of decoders is wrong.
    """
    result = False
    for name, value in given:
        if name == "parallel-decode-num" and value is not None:
            result = _GENERAL[name](name, value) != 1
    return result


def parse_options(
    given: tuple[tuple[str, str | None], ...], profile: Profile, plugin: str
) -> StreamOptions:
    """Read the options of a stream.

    Raises:
        CommandError: one is unknown in this mode, or its value is wrong.
    """
    parallel = is_parallel(given)
    known = known_options(profile, is_parallel=parallel, plugin=plugin)
    result = StreamOptions()
    fields = {field.name for field in dataclasses.fields(result)}
    for name, value in given:
        read = known.get(name)
        if read is None or (value is None and name == "sender-timeout"):
            raise _unknown(name, value)
        found: object
        if value is None:
            if name not in _BARE:
                continue
            found = _BARE[name]
        else:
            found = read(name, value)
        field = name.replace("-", "_") + ("_ms" if name == "sender-timeout" else "")
        if field in fields:
            setattr(result, field, found)
    for name, _ in given:
        if name in _BY_CSN and not result.output_order:
            raise CommandError(f'option "{name}" cannot be set when output-order is 0')
    if result.include_timestamp is None:
        result.include_timestamp = not parallel
    return result
