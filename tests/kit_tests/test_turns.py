"""Majors of PostgreSQL take turns, and none is left out."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from kit.install import MAJORS

ROOT = Path(__file__).parents[2]
LIST = """
import os, sys, pytest
for name in ("GAUSSDECODE_MAJORS", "PYTEST_ADDOPTS"):
    os.environ.pop(name, None)
sys.path.insert(0, "tests")
from kit.turns import majors_by_test

class Lister:
    def pytest_collection_finish(self, session):
        for test, majors in majors_by_test(session.items).items():
            print("majors", test, *majors)

sys.exit(pytest.main(["-q", "--collect-only", "-p", "no:cacheprovider", "tests"], [Lister()]))
"""


@pytest.mark.slow
def test_each_test_has_two_majors_and_each_major_its_share() -> None:
    """Of the whole suite, as it is collected."""
    done = subprocess.run(
        [sys.executable, "-c", LIST], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = {
        words[1]: {int(word) for word in words[2:]}
        for words in map(str.split, done.stdout.splitlines())
        if words[:1] == ["majors"]
    }
    assert {len(majors) for majors in found.values()} == {2}
    share = Counter(major for majors in found.values() for major in majors)
    assert set(share) == set(MAJORS)
    assert min(share.values()) >= len(found) // 4, share
