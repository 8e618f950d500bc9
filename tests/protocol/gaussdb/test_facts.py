"""The table of versions, and all who go by it."""

import re
from pathlib import Path

import pytest
from kit.gaussprofile import PROFILES, Profile

from gaussdecode.protocol.gaussdb import facts
from gaussdecode.protocol.gaussdb.facts import FACTS, VERSIONS, cells, rank
from gaussdecode.protocol.gaussdb.profile import parse_version

LIKE = {
    "has_memory_options": facts.MEMORY_OPTIONS,
    "has_confirmed_flush": facts.CONFIRMED_FLUSH,
    "has_originid": facts.ORIGINS,
    "begin_has_xid": facts.BEGIN_XID,
    "warns_of_ddl": facts.WARNS,
    "serial_drops": facts.DROPS_SERIAL,
    "sends_truncate": facts.TRUNCATE,
    "sends_ddl": facts.DDL_MESSAGES,
}
OPENGAUSS = [profile for profile in PROFILES.values() if not profile.is_commercial]


@pytest.mark.parametrize("profile", OPENGAUSS, ids=lambda profile: profile.name)
def test_simulated_versions_are_the_tables(profile: Profile) -> None:
    """What the simulated server of a version does is what the table says of it."""
    version = parse_version(profile.version)
    where = rank(version.version, is_candidate=version.is_candidate)
    for name, fact in LIKE.items():
        assert getattr(profile, name) is fact.holds(where), name
    assert profile.sends_null_old is not facts.OMITS_NULLS.holds(where)


@pytest.mark.parametrize(
    ("version", "is_parallel", "drops", "warns", "truncate", "omits"),
    [
        ("2.1.0", False, True, False, False, True),
        ("3.0.0", True, True, False, False, True),
        ("3.0.3", False, True, True, False, False),
        ("3.1.1", False, True, True, False, True),
        ("5.0.0", False, True, True, False, False),
        ("5.1.0", True, True, True, False, False),
        ("6.0.0-RC1", False, False, True, False, False),
        ("6.0.0", False, False, True, True, False),
        ("6.0.0", True, True, True, True, False),
        ("7.0.0-RC1", False, False, True, True, False),
    ],
)
def test_what_is_lost_announced_and_hidden(
    version: str, *, is_parallel: bool, drops: bool, warns: bool, truncate: bool, omits: bool
) -> None:
    """By version and mode, as it was read in the server's source."""
    profile = parse_version(f"(openGauss {version} build 1)")
    assert profile.drops_after_ddl(is_parallel=is_parallel) is drops
    assert (profile.warns_of_loss, profile.sends_truncate) == (warns, truncate)
    assert profile.omits_nulls is omits


@pytest.mark.parametrize("version", VERSIONS)
def test_floats_are_rounded_by_plug_in_and_version(version: str) -> None:
    """Never in parallel; by sql_decoding always, by mppdb_decoding before 3.0.0."""
    profile = parse_version(f"(openGauss {version} build 1)")
    for plugin, is_rounding in (("mppdb_decoding", version == "2.1.0"), ("sql_decoding", True)):
        if version == "2.1.0" and plugin == "sql_decoding":
            continue  # the plug-in came with 3.0.0
        assert profile.rounds_floats(plugin, is_parallel=False) is is_rounding
        assert not profile.rounds_floats(plugin, is_parallel=True)


def test_every_row_names_its_source() -> None:
    """A file of the server, or the run that showed it; and a title of its own."""
    assert len({fact.title for fact in FACTS}) == len(FACTS)
    for fact in FACTS:
        assert re.search(r"\.cpp|contrib/|seen on 5\.0\.0", fact.source), fact.title
        assert len(cells(fact)) == len(VERSIONS) + 1


def test_every_row_is_printed() -> None:
    """The page that operators read has what the code goes by."""
    page = (Path(__file__).parents[3] / "docs" / "versions.md").read_text()
    assert all(fact.title in page for fact in FACTS)
