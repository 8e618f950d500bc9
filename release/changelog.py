"""Give a version its number in every file that has it, and its section in the changelog.

`gaussdecode/__init__.py` is where the version is; the changelog, the examples and the page of containers
name it too. What is under Unreleased becomes the section of the version.

usage: release/changelog.py VERSION            before a release; commit what it changes
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
_CHANGELOG: Final = "CHANGELOG.md"
_PLACE: Final = "gaussdecode/__init__.py"
_NAMED: Final = (
    "config/kubernetes/orders.yaml",
    "config/compose/compose.yaml",
    "docs/kubernetes.md",
)
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+")
_NOTHING: Final = "Nothing yet."
_EMPTY: Final = f"## Unreleased\n\n{_NOTHING}\n"


def section(changelog: str, version: str) -> str:
    """Give the section of a version, without its heading.

    Raises:
        SystemExit: there is none, or it says nothing.
    """
    found = re.search(rf"^## {re.escape(version)}\b.*\n((?:(?!## ).*\n)*)", changelog, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{_CHANGELOG} has no section {version}: make version VERSION={version}")
    text = found[1].strip()
    if not text:
        raise SystemExit(f"{_CHANGELOG}: section {version} says nothing")
    return text


def numbered(texts: Mapping[str, str], version: str) -> dict[str, str]:
    """Give the texts with a new version.

    Args:
        texts: of all files that name the version, by path.
        version: the new one.

    Raises:
        SystemExit: it is no version, or older than the last; the changelog has it, or has nothing to say of it.
    """
    if not _VERSION.fullmatch(version):
        raise SystemExit(f"{version!r} is no version; write three numbers, such as 1.2.0")
    found = re.search(r'__version__: Final = "([\d.]+)"', texts[_PLACE])
    if found is None:
        raise SystemExit(f"{_PLACE} has no __version__")
    changelog = texts[_CHANGELOG]
    if re.search(rf"^## {re.escape(version)}\b", changelog, re.MULTILINE):
        raise SystemExit(f"{_CHANGELOG} has a section {version} already")
    if _parts(version) < _parts(found[1]):
        raise SystemExit(f"{version} is older than {found[1]}, which {_PLACE} has")
    changes = section(changelog, "Unreleased")
    told = re.sub(rf"^{re.escape(_NOTHING)}$", "", changes, count=1, flags=re.MULTILINE).strip()
    if not told:
        raise SystemExit(f"{_CHANGELOG}: nothing is under Unreleased")
    old = re.compile(rf"(?<![\d.]){re.escape(found[1])}(?![\d.]*\d)")
    result = {path: old.sub(version, text) for path, text in texts.items()}
    before, after = f"## Unreleased\n\n{changes}", f"{_EMPTY}\n## {version}\n\n{told}"
    result[_CHANGELOG] = changelog.replace(before, after, 1)
    return result


def _parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def main() -> None:
    """Write the files."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    texts = {path: (ROOT / path).read_text() for path in (_PLACE, _CHANGELOG, *_NAMED)}
    for path, text in numbered(texts, sys.argv[1]).items():
        (ROOT / path).write_text(text)


if __name__ == "__main__":
    main()
