"""Versions: what servers call themselves, and what that means."""

import pytest

from gaussdecode.errors import SourceRefusedError
from gaussdecode.protocol.gaussdb import facts
from gaussdecode.protocol.gaussdb.profile import parse_version

TAIL = " compiled at 2022-04-01 18:12:34 commit 0 last mr   on x86_64-unknown-linux-gnu, 64-bit"
FACTS = (
    facts.PARALLEL,
    facts.MEMORY_OPTIONS,
    facts.CONFIRMED_FLUSH,
    facts.ORIGINS,
    facts.BEGIN_XID,
    facts.TRUNCATE,
)
MATRIX = {
    "(openGauss 2.1.0 build 590b0f8e)": ("openGauss 2.1.0", "------"),
    "PostgreSQL 9.2.4 (openGauss 2.1.0 build 590b0f8e)": ("openGauss 2.1.0", "------"),
    "(openGauss 3.0.0 build 02c14696)": ("openGauss 3.0.0", "p-----"),
    "(openGauss 3.0.1 build 02c14696)": ("openGauss 3.0.1", "p-----"),
    "(openGauss 3.0.3 build 46134f73)": ("openGauss 3.0.3", "pmc---"),
    "(openGauss 3.1.0 build 4e931f9a)": ("openGauss 3.1.0", "pmc---"),
    "(openGauss-lite 5.0.3 build 89d144c2)": ("openGauss 5.0.3", "pmco--"),
    "(openGauss 5.1.0 build f8eb6ecb)": ("openGauss 5.1.0", "pmco--"),
    "(openGauss 6.0.0-RC1 build ed7f8e37)": ("openGauss 6.0.0-RC1", "pmco--"),
    "(openGauss 6.0.0 build aee4abd5)": ("openGauss 6.0.0", "pmcoxt"),
    "(openGauss 7.0.0-RC1 build 10d38387)": ("openGauss 7.0.0-RC1", "pmcoxt"),
    "gaussdb (GaussDB Kernel 505.1.0 build 44f4fa53)": ("GaussDB 505.1.0", "pmc---"),
    "gaussdb (GaussDB Kernel 505.2.1.SPC0800 build b04b08b6)": ("GaussDB 505.2.1", "pmc---"),
    "(GaussDB Kernel V500R002C10 build 1)": ("GaussDB V500R002C10", "pmc---"),
    "(MogDB 5.0.5 build b77f1a82)": ("MogDB taken for openGauss 3.0.0", "p-----"),
    "PostgreSQL 9.2.4 on x86_64": ("an unnamed product taken for openGauss 3.0.0", "p-----"),
}


@pytest.mark.parametrize("text", MATRIX)
def test_profiles(text: str) -> None:
    """Name and abilities of every version that the facts tell apart."""
    name, held = MATRIX[text]
    profile = parse_version(text + TAIL)
    assert profile.name == name
    letters = "pmcoxt"
    assert [profile.has(fact) for fact in FACTS] == [letter in held for letter in letters]


def test_commercial_has_its_own_plugins() -> None:
    """There are two in openGauss."""
    assert parse_version("(openGauss 6.0.0 build 1)").plugins == ("mppdb_decoding", "sql_decoding")
    commercial = parse_version("gaussdb (GaussDB Kernel 505.1.0 build 1)")
    assert commercial.is_commercial
    assert "parallel_binary_decoding" in commercial.plugins


def test_number_orders_versions() -> None:
    """For what keeps one number."""
    assert parse_version("(openGauss 5.0.1 build 1)").number == 50001
    assert parse_version("(openGauss 5.0.1 build 1)").version == (5, 0, 1)


def test_postgresql_is_told_to_use_its_own_kind() -> None:
    """Its protocol is another."""
    with pytest.raises(SourceRefusedError, match=r"PostgreSQL 15.*source\.kind: postgresql"):
        parse_version("PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu")


def test_other_servers_are_refused() -> None:
    """Such as a pooler that answers for itself."""
    with pytest.raises(SourceRefusedError, match="neither GaussDB nor openGauss"):
        parse_version("CockroachDB CCL v23.1")
