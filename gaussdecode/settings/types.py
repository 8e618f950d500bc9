"""Read and show types of settings: sizes, durations, whole numbers, names, paths.

Each type reads one YAML scalar (or list) and returns the value the program uses. It
raises ValueError with what is wrong and what is allowed; it knows no file, no key and
no line, which `config` adds. The same objects write the documentation.
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol, TypeVar

KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30
HOUR: Final = 3600.0
DAY: Final = 86400.0

_SIZE_UNITS: Final = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": 2**40}
_DURATION_UNITS: Final = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": HOUR, "d": DAY}
_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]+)")
_ECHO_CHARACTERS: Final = 60  # of a refused value; arbitrary
MAX_INT32: Final = 2**31 - 1
MAX_UINT64: Final = 2**64 - 1
_Default = TypeVar("_Default")


class ValueType(Protocol):
    """Reads one setting."""

    @property
    def allowed(self) -> str:
        """What the operator may write, as the end of a sentence."""

    def read(self, value: object) -> object:
        """Turn what YAML gave into what the program uses, or raise ValueError."""

    def show(self, value: object) -> str:
        """Spell a value as it would stand in the file."""


def echo(value: object) -> str:
    """Spell a refused value for an error message, shortened."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= _ECHO_CHARACTERS else text[:_ECHO_CHARACTERS] + "..."


def refuse(value: object, what: str, allowed: str) -> ValueError:
    """Word a refusal: the value, what is wrong with it, and what is allowed."""
    return ValueError(f"{echo(value)} {what}; allowed: {allowed}")


def parse_size(text: str) -> int:
    """Read ``"128MiB"`` as a number of bytes.

    Raises:
        ValueError: no number with one of the units B, KiB, MiB, GiB, TiB, or a broken byte.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in _SIZE_UNITS:
        raise ValueError(f"not a size: {echo(text)}")
    size = float(match[1]) * _SIZE_UNITS[match[2]]
    if not size.is_integer():
        raise ValueError(f"not a whole number of bytes: {echo(text)}")
    return int(size)


def format_size(size: int) -> str:
    """Spell a number of bytes in the largest unit that divides it."""
    for unit, scale in reversed(_SIZE_UNITS.items()):
        if size and size % scale == 0:
            return f"{size // scale}{unit}"
    return "0B"


def parse_duration(text: str) -> float:
    """Read ``"30s"`` or ``"500ms"`` as seconds.

    Raises:
        ValueError: no number with one of the units ms, s, min, h, d.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in _DURATION_UNITS:
        raise ValueError(f"not a duration: {echo(text)}")
    return float(match[1]) * _DURATION_UNITS[match[2]]


def format_duration(seconds: float) -> str:
    """Spell seconds in the largest unit that divides them."""
    milliseconds = round(seconds * 1000)
    for unit, scale in reversed(_DURATION_UNITS.items()):
        if milliseconds and milliseconds % round(scale * 1000) == 0:
            return f"{milliseconds // round(scale * 1000)}{unit}"
    return "0s"


class _Shown:
    """Spells a value as Python does."""

    __slots__ = ()

    def show(self, value: object) -> str:
        """Spell a value as it would stand in the file."""
        return str(value)


@dataclasses.dataclass(frozen=True, slots=True)
class Boolean:
    """True or false; on, off, yes and no are read alike, as YAML 1.1 says.

    Attributes:
        only: the single value that can be had, or None for both.
        takes_numbers: 1 and 0 are read too, as the product does.
    """

    only: bool | None = None
    takes_numbers: bool = False

    @property
    def allowed(self) -> str:
        """What the operator may write."""
        return "true, false" if self.only is None else self.show(self.only)

    def read(self, value: object) -> bool:
        """Accept a YAML boolean, and 1 and 0 where they are taken."""
        if self.takes_numbers and type(value) is int and value in {0, 1}:
            value = bool(value)
        if not isinstance(value, bool):
            raise refuse(value, "is not a boolean", self.allowed)
        if self.only is not None and value is not self.only:
            raise refuse(value, "is not possible", self.allowed)
        return value

    def show(self, value: object) -> str:
        """Spell it as YAML does."""
        return str(bool(value)).lower()


@dataclasses.dataclass(frozen=True, slots=True)
class Integer(_Shown):
    """A whole number.

    Attributes:
        minimum: smallest allowed.
        maximum: largest allowed.
        power_of_two: nothing else is allowed.
        word: is allowed instead of a number.
    """

    minimum: int
    maximum: int
    power_of_two: bool = False
    word: str | None = None

    @property
    def allowed(self) -> str:
        """The range in words."""
        span = f"{self.minimum} to {self.maximum}"
        span = f"{span}, or {self.word}" if self.word else span
        return f"{span}, a power of two" if self.power_of_two else span

    def read(self, value: object) -> int | str:
        """Check the kind, the range and the shape, in this order."""
        if self.word is not None and value == self.word:
            return self.word
        if isinstance(value, str) and value.strip().isdecimal():
            raise refuse(f'"{value}"', "is a text; write it without quotes", self.allowed)
        if isinstance(value, bool) or not isinstance(value, int):
            raise refuse(value, "is not a whole number", self.allowed)
        if not self.minimum <= value <= self.maximum:
            raise refuse(value, "is out of range", self.allowed)
        if self.power_of_two and value.bit_count() != 1:
            raise refuse(value, "is not a power of two", self.allowed)
        return value


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """A number of bytes, written with its unit.

    Attributes:
        minimum: smallest allowed.
        maximum: largest allowed.
        multiple: it must be a multiple of this.
        or_none: the word ``none`` is allowed too.
    """

    minimum: int
    maximum: int
    multiple: int = 1
    or_none: bool = False

    @property
    def allowed(self) -> str:
        """The range in words."""
        span = f"{format_size(self.minimum)} to {format_size(self.maximum)}"
        span = f"none, or {span}" if self.or_none else span
        return span if self.multiple == 1 else f"{span}, a multiple of {format_size(self.multiple)}"

    def read(self, value: object) -> int | None:
        """Accept a text with a unit; a bare number would leave the unit to guess."""
        if self.or_none and value in (None, "none"):
            return None
        if not isinstance(value, str):
            raise refuse(value, 'is not a size with a unit, like "128MiB"', self.allowed)
        try:
            size = parse_size(value)
        except ValueError:
            raise refuse(value, 'is not a size like "128MiB"', self.allowed) from None
        if not self.minimum <= size <= self.maximum:
            raise refuse(value, "is out of range", self.allowed)
        if size % self.multiple:
            raise refuse(value, f"is no multiple of {format_size(self.multiple)}", self.allowed)
        return size

    def show(self, value: object) -> str:
        """Spell it with a unit."""
        return format_size(value) if isinstance(value, int) else str(value)


@dataclasses.dataclass(frozen=True, slots=True)
class Duration:
    """A time span, written with its unit; seconds in the program.

    Attributes:
        minimum: smallest allowed, seconds.
        maximum: largest allowed, seconds.
        or_none: the word ``none`` is allowed too.
    """

    minimum: float
    maximum: float
    or_none: bool = False

    @property
    def allowed(self) -> str:
        """The range in words."""
        span = f"{format_duration(self.minimum)} to {format_duration(self.maximum)}"
        return f"none, or {span}" if self.or_none else span

    def read(self, value: object) -> float | None:
        """Accept a text with a unit; a bare number would leave the unit to guess."""
        if self.or_none and value in (None, "none"):
            return None
        if not isinstance(value, str):
            raise refuse(value, 'is not a duration with a unit, like "30s"', self.allowed)
        try:
            seconds = parse_duration(value)
        except ValueError:
            raise refuse(value, 'is not a duration like "30s"', self.allowed) from None
        if not self.minimum <= seconds <= self.maximum:
            raise refuse(value, "is out of range", self.allowed)
        return seconds

    def show(self, value: object) -> str:
        """Spell it with a unit."""
        return format_duration(value) if isinstance(value, int | float) else "none"


@dataclasses.dataclass(frozen=True, slots=True)
class Choice(_Shown):
    """One of a few words.

    Attributes:
        words: all of them.
    """

    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        """The words."""
        return ", ".join(self.words)

    def read(self, value: object) -> str:
        """Accept one of the words, as they are spelled; YAML reads a bare on or off as a boolean."""
        if isinstance(value, bool):
            value = ("off", "on")[value]
        if not isinstance(value, str) or value not in self.words:
            raise refuse(value, "is unknown", self.allowed)
        return value


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """A text of a certain shape.

    Attributes:
        pattern: the whole text must match it.
        allowed: the same in words.
        is_echoed: whether a wrong one may be repeated: it may hold a password.
    """

    pattern: str
    allowed: str
    is_echoed: bool = True

    def read(self, value: object) -> str:
        """Accept a text only: YAML reads a bare 123 or yes as something else."""
        if not isinstance(value, str):
            raise refuse(value, "is not a text; put it in quotes", self.allowed)
        if re.fullmatch(self.pattern, value, re.DOTALL) is None:
            if not self.is_echoed:
                raise ValueError(f"has the wrong form; allowed: {self.allowed}")
            raise refuse(value, "has the wrong form", self.allowed)
        return value

    def show(self, value: object) -> str:
        """Spell the text; nothing is the empty text."""
        return str(value) or '""'


@dataclasses.dataclass(frozen=True, slots=True)
class CsnAndLsn:
    """Two whole numbers of 64 bits, ``CSN/LSN``, or nothing."""

    allowed = f"two whole numbers up to {MAX_UINT64} joined by a slash, CSN/LSN"

    def read(self, value: object) -> str:
        """Accept a text only."""
        if not isinstance(value, str):
            raise refuse(value, "is not a text; put it in quotes", self.allowed)
        numbers = value.split("/") if value else ["0", "0"]
        is_number = [text.isascii() and text.isdigit() and len(text) <= 20 for text in numbers]
        if is_number != [True, True]:
            raise refuse(value, "has the wrong form", self.allowed)
        if max(map(int, numbers)) > MAX_UINT64:
            raise refuse(value, "is out of range", self.allowed)
        return value

    def show(self, value: object) -> str:
        """Spell the text; nothing is the empty text."""
        return str(value) or '""'


@dataclasses.dataclass(frozen=True, slots=True)
class TextList:
    """A list of texts of one shape, at least one.

    Attributes:
        item: the type of each.
        is_set: they are all different.
    """

    item: Text
    is_set: bool = True

    @property
    def allowed(self) -> str:
        """The shape in words."""
        return f"a list, [a, b], of: {self.item.allowed}"

    def read(self, value: object) -> tuple[str, ...]:
        """Accept a YAML list; a single text is a list of one."""
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not items:
            raise refuse(value, "is not a list with at least one item", self.allowed)
        texts = tuple(self.item.read(item) for item in items)
        if self.is_set and len(set(texts)) != len(texts):
            raise refuse(", ".join(texts), "names one thing twice", self.allowed)
        return texts

    def show(self, value: object) -> str:
        """Spell it as a YAML flow list."""
        return f"[{', '.join(value)}]" if isinstance(value, tuple) else str(value)


@dataclasses.dataclass(frozen=True, slots=True)
class Patterns:
    """Keys of one shape, each with a word: ``{schema.name: word}``.

    Attributes:
        key: the type of each key.
        word: the type of each value.
    """

    key: Text
    word: Choice

    @property
    def allowed(self) -> str:
        """The shape in words."""
        return f"{{key: word}} of {self.key.allowed}, each {self.word.allowed}"

    def read(self, value: object) -> tuple[tuple[str, str], ...]:
        """Accept a mapping of plain values."""
        if not isinstance(value, Mapping) or not value:
            raise refuse(value, "is not a mapping with at least one key", self.allowed)
        return tuple((self.key.read(key), self.word.read(word)) for key, word in value.items())

    def show(self, value: object) -> str:
        """Spell it as a YAML flow mapping."""
        pairs = value if isinstance(value, tuple) else ()
        return "{" + ", ".join(f"{key}: {word}" for key, word in pairs) + "}"


@dataclasses.dataclass(frozen=True, slots=True)
class AbsolutePath:
    """A path from the root of the file system; a service has no current directory."""

    allowed = "an absolute path"

    def read(self, value: object) -> Path:
        """Accept an absolute path without a NUL byte."""
        if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
            raise refuse(value, "is not an absolute path", self.allowed)
        return Path(value)

    def show(self, value: object) -> str:
        """Spell the path."""
        return "none" if value is None else str(value)


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens.

    Attributes:
        host: name or number; IPv6 without brackets.
        port: 0 takes any free one.
    """

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclasses.dataclass(frozen=True, slots=True)
class AddressType(_Shown):
    """``host:port``."""

    allowed = "host:port, with a port from 0 to 65535"

    def read(self, value: object) -> Address:
        """Split at the last colon; brackets around IPv6."""
        host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
        is_number = port.isascii() and port.isdigit() and len(port) <= len("65535")
        bare = host.removeprefix("[").removesuffix("]")
        if not bare or not is_number or int(port) > 65535 or (":" in bare and bare == host):
            raise refuse(value, "is not an address", self.allowed)
        return Address(bare, int(port))


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What is known about a field besides its default.

    Attributes:
        type: reads and shows it.
        meaning: one or two sentences.
        is_secret: its value is never repeated.
        is_for_start: only a restart changes it, a reload does not.
    """

    type: ValueType
    meaning: str
    is_secret: bool = False
    is_for_start: bool = False


def about(
    value_type: ValueType, meaning: str, *, is_secret: bool = False, is_for_start: bool = False
) -> dict[str, Setting]:
    """Make the metadata of a field that is set in the file."""
    return {"setting": Setting(value_type, meaning, is_secret, is_for_start)}


def setting(
    default: _Default,
    value_type: ValueType,
    meaning: str,
    *,
    is_secret: bool = False,
    is_for_start: bool = False,
) -> _Default:
    """Declare a field that may be left out of the file; a secret is not in the ``repr`` either."""
    metadata = about(value_type, meaning, is_secret=is_secret, is_for_start=is_for_start)
    return dataclasses.field(default=default, repr=not is_secret, metadata=metadata)
