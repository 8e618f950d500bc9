"""The house: imports go down, Cython's too, and the maps in the docs are the tree."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "gaussdecode"
IMPORT: Final = re.compile(
    r"^[ \t]*(?:from (?P<package>gaussdecode[\w.]*) c?import (?P<names>\([^)]*\)|[^\n#]*)"
    r"|c?import (?P<module>gaussdecode[\w.]*))",
    re.MULTILINE,
)
CONTRACTS: Final[list[dict[str, Any]]] = tomllib.loads((ROOT / "pyproject.toml").read_text())[
    "tool"
]["importlinter"]["contracts"]


def modules() -> dict[str, str]:
    """Texts by dotted name; of a Cython module with what it declares."""
    found: dict[str, str] = {}
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in {".py", ".pyx", ".pxd"}:
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            found[name] = found.get(name, "") + path.read_text()
    return found


def imports(text: str, known: dict[str, str]) -> Iterator[str]:
    """Modules of ours that a text imports."""
    for match in IMPORT.finditer(text):
        if match["module"]:
            yield match["module"]
            continue
        for name in re.findall(r"\w+", match["names"]):
            inner = f"{match['package']}.{name}"
            yield inner if inner in known else match["package"]


def floors(contract: dict[str, Any]) -> dict[str, int]:
    """Number of the layer of each member of a container, from the roof down."""
    layers = [re.findall(r"\w+", layer) for layer in contract["layers"]]
    return {name: number for number, layer in enumerate(layers) for name in layer}


def member(module: str, container: str) -> str | None:
    """The child of a container that a module is, or is in."""
    inside = module.removeprefix(container + ".")
    return None if inside == module else inside.partition(".")[0]


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract["containers"][0])
def test_cython_keeps_to_the_layers_too(contract: dict[str, Any]) -> None:
    """Each module imports from layers below its own, and every child of a container has one."""
    (container,) = contract["containers"]
    floor = floors(contract)
    known = modules()
    children = {member(module, container) for module in known} - {None}
    assert children == set(floor)
    wrong = [
        f"{module} imports {other}"
        for module, text in known.items()
        for other in imports(text, known)
        if (one := member(module, container))
        and (two := member(other, container))
        and one != two
        and floor[one] >= floor[two]
    ]
    assert not wrong


def test_the_map_is_the_tree() -> None:
    """Every folder of code stands in it, in its place, and nothing else does."""
    block = re.search(
        r"^    gaussdecode/\n((?:      .*\n)+)",
        (ROOT / "docs" / "architecture.md").read_text(),
        re.MULTILINE,
    )
    assert block is not None
    path: list[str] = []
    mapped: set[str] = set()
    for line in block[1].splitlines():
        head = line.removeprefix("      ")
        name = head.split()[0]
        indent = head[: -len(head.lstrip())] if head != head.lstrip() else ""
        path = [*path[: len(indent) // 2], name]
        mapped.add("".join(path))
    folders = {
        f"{path.relative_to(PACKAGE)}/"
        for path in PACKAGE.rglob("*")
        if path.is_dir() and any(path.glob("*.py"))
    }
    assert {name for name in mapped if name.endswith("/")} == folders
    assert all((PACKAGE / name).exists() for name in mapped)
