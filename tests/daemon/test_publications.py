"""What is said of publications that are not what they were."""

import pytest

from gaussdecode.daemon import publications
from gaussdecode.source.postgresql.members import Member, sums, taken_out

_KNOWN = {"a": (1, 10), "b": (2, 20)}


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        (_KNOWN, []),
        ({"a": (1, 10)}, []),
        ({**_KNOWN, "new": (3, 30)}, []),
        ({**_KNOWN, "a": (7, 10)}, ["publication 'a' was dropped and made again"]),
        ({**_KNOWN, "b": (2, 21)}, ["publication 'b' was altered"]),
        (
            {"a": (5, 11), "b": (2, 22)},
            ["publication 'a' was dropped and made again", "publication 'b' was altered"],
        ),
    ],
)
def test_differences(seen: dict[str, tuple[int, int]], wanted: list[str]) -> None:
    """OID and version count; what is new, or missing, is others' to judge."""
    assert publications.differences(_KNOWN, seen) == wanted


def test_members_that_are_listed_anew() -> None:
    """By another row, or none: taken out; what was put in is not."""
    known = [Member(1, 100, "s", "a"), Member(2, 200, "s", "b"), Member(3, 300, "t", None)]
    seen = [Member(1, 100, "s", "renamed"), Member(9, 200, "s", "b"), Member(10, 400, "s", "new")]
    assert taken_out(known, seen) == known[1:]
    assert sums(known) != sums(seen)
    gone = {"a": known[1:], "b": known[1:], "c": []}
    said = publications.taken_out(gone, _KNOWN, {"a": (1, 11), "b": (9, 9), "c": (3, 3)})
    assert said == {"a": known[1:]}
    record = publications.suspect(["x"], 100, 300, said)
    assert record["text"].startswith("x; table s.b, schema 't' was taken out of publication 'a': ")
    assert record["tables"] == ["s.b"]


def test_what_an_earlier_version_knew_is_compared() -> None:
    """Without members: those are read, and the rest is compared as before."""
    seen = {"a": (1, 10, 0, 0), "b": (2, 21, 5, 55)}
    assert not publications.are_known(_KNOWN, seen)
    assert publications.are_known(seen, {"b": (2, 21, 5, 55)})
    assert publications.differences(_KNOWN, seen) == ["publication 'b' was altered"]


def test_suspect_names_the_stretch() -> None:
    """From what landed to the server's end; never an end before the beginning."""
    assert publications.suspect(["x"], 100, 300)["until_lsn"] == 300
    record = publications.suspect(["x"], 400, 300)
    assert (record["from_lsn"], record["until_lsn"]) == (400, 400)
    assert record["text"].startswith("x: changes from 0/190 on")
