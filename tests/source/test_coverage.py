"""What only one of publications and white list has."""

import pytest

from gaussdecode.source.coverage import Coverage, compare, listing

_PUBLISHED = [("sales", "orders"), ("sales", "items"), ("public", "a")]


@pytest.mark.parametrize(
    ("items", "unlisted", "unpublished"),
    [
        ([], (), ()),
        ([("*", "*")], (), ()),
        ([("sales", "*"), ("*", "a")], (), ()),
        ([("sales", "orders")], ("public.a", "sales.items"), ()),
        ([("sales", "*"), ("public", "a"), ("public", "b"), ("hr", "*"), ("*", "z")],
         (), ("*.z", "hr.*", "public.b")),
    ],
)  # fmt: skip
def test_differences(
    items: list[tuple[str, str]], unlisted: tuple[str, ...], unpublished: tuple[str, ...]
) -> None:
    """Patterns count for both sides; no list lists everything."""
    found = compare(items, _PUBLISHED)
    assert (found.unlisted, found.unpublished) == (unlisted, unpublished)
    assert Coverage.from_record(found.to_record()) == found


def test_source_without_publications_has_nothing_to_compare() -> None:
    """A recording, or GaussDB, tells nothing."""
    assert Coverage.from_record({}) == Coverage()


def test_many_are_counted_and_some_named() -> None:
    """The report stays small."""
    found = compare([("x", "y")], [("s", f"t{number:04}") for number in range(1000)])
    assert found.unlisted_count == 1000
    assert len(found.unlisted) == 20
    assert listing(found.unlisted, found.unlisted_count).endswith("s.t0019 and 980 more")
