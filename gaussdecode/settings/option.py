"""Describe one of GaussDB's logical decoding options: its type, its range, and who implements it.

The classes of `options` and `rules`: an option, and its support by a kind of source and a version of its
server. Knows no file, no key and no connection.
"""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Final, Protocol

from gaussdecode.settings.types import MAX_INT32, Integer, ValueType

Version = tuple[int, int, int]
AUTO: Final = "auto"
"""Instead of a number: it is chosen while the daemon runs."""


class SourceKind(enum.StrEnum):
    """Where changes come from."""

    POSTGRESQL = "postgresql"
    GAUSSDB = "gaussdb"
    CAPTURE = "capture"


class Section(enum.StrEnum):
    """The chapter of the product's documentation, which says when an option applies."""

    GENERAL = "general"
    DISTRIBUTED = "distributed"
    SERIAL = "serial"
    PARALLEL = "parallel"


class Doer(enum.StrEnum):
    """Who does what an option asks for."""

    SERVER = "server"
    DAEMON = "daemon"
    BOTH = "both"
    REFUSED = "refused"


class ServerProfile(Protocol):
    """The server of kind gaussdb, as far as options depend on it."""

    @property
    def name(self) -> str:
        """Product and version for messages: ``openGauss 5.0.1``."""

    @property
    def is_commercial(self) -> bool:
        """GaussDB, which has all documented options; else openGauss."""

    @property
    def version(self) -> Version:
        """Of openGauss."""


@dataclasses.dataclass(frozen=True, slots=True)
class Support:
    """Who does an option for one kind of source.

    Attributes:
        by: the one who does it.
        how: meaning for this source; for refused ones the reason.
        accepts: the values that can be had, when not all can; of a refused option, those
            that ask for nothing.
        range: values that this server accepts, if fewer than the product's documentation.
        since: the first openGauss that has it, None for all.
        before: support in versions before `since`.
    """

    by: Doer
    how: str
    accepts: tuple[object, ...] | None = None
    range: ValueType | None = None
    since: Version | None = None
    before: "Support | None" = None

    @property
    def is_passed_on(self) -> bool:
        """Whether the server is told."""
        return self.by in {Doer.SERVER, Doer.BOTH}

    def of(self, server: ServerProfile | None) -> "Support":
        """Say who does it with one version of the server; None for the newest."""
        if server is None or self.since is None or server.version >= self.since:
            return self
        assert self.before is not None  # a row with `since` says what was before
        return self.before.of(server)

    def problem(self, value: object) -> str | None:
        """Say why a value of the right type cannot be had; None when it can."""
        if self.accepts is not None and value not in self.accepts:
            return self.how
        if self.range is not None:
            try:
                self.range.read(value)
            except ValueError:
                return f"the server takes {self.range.allowed}"
        return None

    def can_have(self, value: object) -> bool:
        """Whether a value of the right type is possible."""
        return self.problem(value) is None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option.

    Attributes:
        name: name in the product.
        section: chapter of the product's documentation.
        type: its type and range; with `memory_share` that of serial decoding.
        default: the product's in serial decoding; None where the server computes it.
        default_parallel: the product's in parallel decoding, where it differs.
        own_defaults: ours, by kind of source, where they differ.
        unit: unit of the number, or empty.
        unit_bytes: bytes in one unit, for `memory_share`.
        memory_share: maximum as a part of the process memory, in parallel decoding.
        meaning: one sentence.
        postgresql: support with PostgreSQL; a capture file is read as the stream it recorded.
        gaussdb: support with GaussDB.
        opengauss_own: support with openGauss, where it differs.
    """

    name: str
    section: Section = Section.GENERAL
    type: ValueType
    default: object
    default_parallel: object = None
    own_defaults: Mapping[SourceKind, object] = dataclasses.field(default_factory=dict)
    unit: str = ""
    unit_bytes: int = 1
    memory_share: float | None = None
    meaning: str
    postgresql: Support
    gaussdb: Support
    opengauss_own: Support | None = None

    @property
    def opengauss(self) -> Support:
        """Support with openGauss."""
        return self.opengauss_own or self.gaussdb

    def support(self, kind: SourceKind, server: ServerProfile | None = None) -> Support:
        """Say who does it for a kind of source.

        Args:
            kind: kind of the source.
            server: server of kind gaussdb; None takes GaussDB, which has all options.
        """
        if kind is not SourceKind.GAUSSDB:
            return self.postgresql
        if server is None or server.is_commercial:
            return self.gaussdb
        return self.opengauss.of(server)

    def candidates(self, kind: SourceKind, server: ServerProfile | None) -> tuple[Support, ...]:
        """Who might do it: one when the server is known, else one per product."""
        if kind is SourceKind.GAUSSDB and server is None:
            return self.gaussdb, self.opengauss
        return (self.support(kind, server),)

    def effective_default(self, kind: SourceKind, *, is_parallel: bool) -> object:
        """Say what holds when the configuration is silent."""
        if kind in self.own_defaults:
            return self.own_defaults[kind]
        if is_parallel and self.default_parallel is not None:
            return self.default_parallel
        return self.default

    def range(self, *, is_parallel: bool, memory_bytes: int | None) -> ValueType:
        """Say what is allowed in one mode.

        Args:
            is_parallel: parallel-decode-num is above 1.
            memory_bytes: memory of the process, the product's max_process_memory; None
                when it is not known.
        """
        if not is_parallel or self.memory_share is None:
            return self.type
        if memory_bytes is None:
            return Integer(0, MAX_INT32)
        return Integer(0, int(memory_bytes * self.memory_share) // self.unit_bytes)
