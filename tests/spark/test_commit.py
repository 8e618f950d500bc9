"""Tests for `gaussdecode.spark.merge.commit`."""

import pytest

from gaussdecode.spark.merge.commit import ahead
from gaussdecode.spark.merge.plan import Applied, Plan


@pytest.mark.parametrize(("reached", "expected"), [(59, "public.b"), (60, None), (61, None)])
def test_tables_show_when_the_plan_is_beyond_their_rows(reached: int, expected: str | None) -> None:
    """Rows that were read later than the plan's position would be newer than the other tables."""
    applied = {
        "public.a": Applied(3),
        "public.b": Applied(3, ignore_through=(1, 60)),
        "public.c": Applied(3, ignore_through=(0, 900)),
    }
    assert ahead(Plan(5, position=(1, reached, None)), applied) == expected
