"""Pages are written for a tired reader: short sentences, and names by the glossary."""

import io
import re
import statistics
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    ROOT / "bench" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "adr").glob("*.md")),
]
MEDIAN, NINE_OF_TEN = 14, 26  # words, of the sentences of a page
FEW: Final = 5
"""Pages with fewer sentences are tables, and have no median worth a name."""


def sentences(text: str) -> Iterator[int]:
    """Words of each sentence of a page; code, tables and headings are left out."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^(\||#|    |!\[).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\s*(?:[-*]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    for paragraph in re.split(r"\n\s*\n", text):
        joined = " ".join(paragraph.split())
        for sentence in re.split(r"(?<=[.!?])[\"')*_`\]]*\s+(?=[A-Z`*\[(\"'_])", joined):
            count = len(re.findall(r"[\w`'/.=-]*\w[\w`'/.=-]*", sentence))
            if count > 1:
                yield count


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_are_short(page: Path) -> None:
    """Half of them have 14 words at most, nine of ten 26."""
    counts = sorted(sentences(page.read_text()))
    if len(counts) >= FEW:
        assert statistics.median(counts) <= MEDIAN
        assert counts[int(0.9 * len(counts))] <= NINE_OF_TEN


def retired() -> dict[str, str]:
    """Names of the code that are no longer used, and what stands in their place."""
    section = (ROOT / "docs" / "glossary.md").read_text().split("## Retired names")[1]
    return dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE))


def test_retired_names_are_gone() -> None:
    """No module, class, function or variable has one of them."""
    words = retired()
    assert len(words) > 10
    found = []
    for path in sorted((ROOT / "gaussdecode").rglob("*.py")):
        names = {path.stem, *path.parts}
        tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        names |= {token.string for token in tokens if token.type == tokenize.NAME}
        found += [f"{path.relative_to(ROOT)}: {word}" for word in sorted(words.keys() & names)]
    assert not found


def test_readme_and_concepts_are_read_in_one_go() -> None:
    """The first pages stay short."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
    assert len((ROOT / "docs" / "concepts.md").read_text().splitlines()) <= 120
    assert len((ROOT / "docs" / "spark.md").read_text().splitlines()) <= 250
