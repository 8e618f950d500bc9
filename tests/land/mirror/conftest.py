"""One S3 server for the tests of a process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.s3 import S3


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """A running server; tests make buckets of their own."""
    directory: Path = tmp_path_factory.mktemp("s3")
    with S3(directory) as server:
        yield server
