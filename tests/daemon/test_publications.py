"""What is said of publications that are not what they were."""

import pytest

from gaussdecode.daemon import publications

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


def test_suspect_names_the_stretch() -> None:
    """From what landed to the server's end; never an end before the beginning."""
    assert publications.suspect(["x"], 100, 300)["until_lsn"] == 300
    record = publications.suspect(["x"], 400, 300)
    assert (record["from_lsn"], record["until_lsn"]) == (400, 400)
    assert record["text"].startswith("x: changes from 0/190 on")
