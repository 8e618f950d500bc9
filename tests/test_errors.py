"""Tests for `gaussdecode.errors`: what reaches the main process from a child."""

import json

import pytest

from gaussdecode.errors import (
    GaussDecodeError,
    MirrorRefusedError,
    SpoolFullError,
    StoppedError,
    from_record,
    to_record,
)


@pytest.mark.parametrize(
    "error", [SpoolFullError("full", "53100"), MirrorRefusedError("away"), StoppedError("asked")]
)
def test_an_error_of_any_class_survives_the_way_between_processes(error: GaussDecodeError) -> None:
    """Its class says the exit status, and whether to try again."""
    again = from_record(json.loads(json.dumps(to_record(error))))
    assert (type(again), str(again)) == (type(error), str(error))
