"""Find what a server version can do, from the text of ``version()``.

    (openGauss 6.0.0-RC1 build ed7f8e37) compiled at ...
    (openGauss-lite 5.0.3 build 89d144c2) compiled at ...
    PostgreSQL 9.2.4 (openGauss 2.1.0 build 590b0f8e) compiled at ...
    gaussdb (GaussDB Kernel 505.1.0.SPC0800 build 44f4fa53) compiled at ...
    (GaussDB Kernel V500R002C10 build ...) compiled at ...

A profile decides which options and columns may be asked for, and what `check` tells the
operator, by the table of `facts`. It never decides how bytes are read: they say themselves which parts they have.
Products built from openGauss (MogDB, Vastbase, ...) that name no version we know are taken
for its 3.0.0, the oldest release with parallel decoding.
"""

import dataclasses
import re
from typing import Final

from gaussdecode.errors import SourceRefusedError
from gaussdecode.protocol.gaussdb import facts
from gaussdecode.protocol.gaussdb.facts import Fact, rank

_OPENGAUSS: Final = re.compile(
    r"openGauss(?:-lite)?\s+(\d+)\.(\d+)(?:\.(\d+))?(-RC\d+)?", re.IGNORECASE
)
_KERNEL: Final = re.compile(r"GaussDB\s+Kernel\s+(\d+)\.(\d+)(?:\.(\d+))?", re.IGNORECASE)
_RELEASE: Final = re.compile(r"GaussDB\s+Kernel\s+V(\d+)R(\d+)C(\d+)", re.IGNORECASE)
_RELATIVE: Final = re.compile(
    r"\(?(MogDB|Vastbase|GBase|PanWeiDB|MTKDB|Uqbar|openGauss)\b", re.IGNORECASE
)
_POSTGRESQL: Final = re.compile(r"PostgreSQL (\d+)")
_BASE_MAJOR: Final = "9"  # every GaussDB calls itself PostgreSQL 9.2.4
MPPDB_DECODING: Final = "mppdb_decoding"
SQL_DECODING: Final = "sql_decoding"
PARALLEL_PLUGINS: Final = (
    "parallel_binary_decoding",
    "parallel_json_decoding",
    "parallel_text_decoding",
)


@dataclasses.dataclass(frozen=True, slots=True)
class VersionProfile:
    """A product and its version.

    Attributes:
        product: such as ``openGauss``.
        version: three numbers.
        is_candidate: a release candidate, which may lack what the release has.
        is_commercial: GaussDB, not openGauss.
        text: text of the version as the server spells it.
    """

    product: str
    version: tuple[int, int, int]
    is_candidate: bool = False
    is_commercial: bool = False
    text: str = ""

    @property
    def name(self) -> str:
        """For messages: ``openGauss 5.0.1``, ``GaussDB 505.1.0``."""
        return f"{self.product} {self.text or '.'.join(str(part) for part in self.version)}"

    @property
    def number(self) -> int:
        """One number, for what stores one: 50001."""
        major, minor, patch = self.version
        return major * 10_000 + minor * 100 + patch

    @property
    def has_origins(self) -> bool:
        """The option include-originid is known."""
        return self.has(facts.ORIGINS)

    @property
    def warns_of_loss(self) -> bool:
        """Rows lost to DDL are announced in a notice, to a session that hears warnings."""
        return self.has(facts.WARNS)

    def drops_after_ddl(self, *, is_parallel: bool) -> bool:
        """Whether rows that follow DDL in their own transaction are not sent.

        Of GaussDB nobody outside knows, so it is not trusted.
        """
        return self.has(facts.DROPS_PARALLEL if is_parallel else facts.DROPS_SERIAL)

    @property
    def sends_truncate(self) -> bool:
        """Serial mppdb_decoding sends TRUNCATE, not that of partitions, and DDL."""
        return self.has(facts.TRUNCATE)

    @property
    def omits_nulls(self) -> bool:
        """Old tuples leave out the columns that are NULL."""
        return self.has(facts.OMITS_NULLS)

    def rounds_floats(self, plugin: str, *, is_parallel: bool) -> bool:
        """Floating point columns come with 6 or 15 digits, which is not always what they hold."""
        fact = facts.ROUNDS_SQL if plugin == SQL_DECODING else facts.ROUNDS_MPPDB
        return not is_parallel and self.has(fact)

    @property
    def plugins(self) -> tuple[str, ...]:
        """Output plug-ins that a slot can be created with."""
        own = PARALLEL_PLUGINS if self.is_commercial else ()
        return (MPPDB_DECODING, SQL_DECODING, *own)

    @property
    def reads_areas(self) -> bool:
        """A stretch of the WAL can be read without a slot."""
        return self.has(facts.AREA)

    def has(self, fact: Fact) -> bool:
        """Whether a row of the table holds."""
        if self.is_commercial:
            return fact.in_gaussdb
        return fact.holds(rank(self.version, is_candidate=self.is_candidate))


def omits_nulls(number: int) -> bool:
    """Whether the server of a version leaves NULLs out of old tuples; 3.0.3 to 3.0.6 do not."""
    version = number // 10_000, number // 100 % 100, number % 100
    return facts.OMITS_NULLS.holds(rank(version))


def parse_version(text: str) -> VersionProfile:
    """Read the answer of ``version()``.

    Raises:
        SourceRefusedError: this is no GaussDB.
    """
    for pattern in (_KERNEL, _RELEASE):
        if found := pattern.search(text):
            version = _numbers(found)
            spelled = found.group(0).split()[-1] if pattern is _RELEASE else _dotted(version)
            return VersionProfile("GaussDB", version, is_commercial=True, text=spelled)
    if found := _OPENGAUSS.search(text):
        version = _numbers(found)
        candidate = found[4] or ""
        return VersionProfile(
            "openGauss", version, bool(candidate), text=_dotted(version) + candidate
        )
    postgresql = _POSTGRESQL.match(text)
    if postgresql is not None and postgresql[1] != _BASE_MAJOR:
        raise SourceRefusedError(
            f"the server is PostgreSQL {postgresql[1]}, not GaussDB; set source.kind: postgresql"
        )
    relative = _RELATIVE.search(text)
    if relative is None and postgresql is None:
        raise SourceRefusedError("the server is neither GaussDB nor openGauss; check source.dsn")
    product = relative[1] if relative is not None else "an unnamed product"
    return VersionProfile(product, (3, 0, 0), text="taken for openGauss 3.0.0")


def _numbers(found: re.Match[str]) -> tuple[int, int, int]:
    return int(found[1]), int(found[2]), int(found[3] or 0)


def _dotted(version: tuple[int, int, int]) -> str:
    return ".".join(str(part) for part in version)
