"""Read one YAML file into sections that remember their lines.

Given an operator's text, gives a `Section` of plain values or a list of complaints with line numbers. It refuses
features that a configuration does not need and an attacker might use: tags, anchors, aliases, more than 1 MB,
deep nesting. A complaint never repeats text of the file except keys: a value could be a password.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

MAX_BYTES: Final = 1_000_000
_MAX_DEPTH: Final = 8  # a configuration is three deep; arbitrary

_OCTAL: Final = re.compile(r"[-+]?0[0-7_]+")
_SIGN: Final = re.compile(r"'([^\w\s]|<[a-z ]+>)'")


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """The value of one key.

    Attributes:
        line: line of its key, from 1.
        value: a scalar, a list of scalars, or a `Section`.
        written: the text of the file, if variables of the environment were put into it.
    """

    line: int
    value: object
    written: str | None = None


Problem = tuple[int, str]
Section = Mapping[str, Entry]


class YamlError(ValueError):
    """A file that is not the plain YAML we read.

    Attributes:
        problems: line (0 for the whole file) and text of each.
    """

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems)
        self.problems = problems


def _unparsed(text: str, line: int, problem: str | None) -> str:
    """Say why a line is no YAML; a tab is so common and so hard to see that it is named."""
    lines = text.splitlines()
    content = lines[line - 1] if 0 < line <= len(lines) else ""
    if "\t" in content[: len(content) - len(content.lstrip())]:
        return "begins with a tab; YAML takes spaces only"
    return f"not YAML: {_without_quotes(problem)}"


def parse(text: str) -> Section:
    """Read a whole file.

    Raises:
        YamlError: it is too large, no YAML, or uses what is refused.
    """
    if len(text.encode()) > MAX_BYTES:
        raise YamlError([(0, f"the file is larger than {MAX_BYTES} bytes")])
    try:
        _refuse_features(text)
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 0 if mark is None else mark.line + 1
        raise YamlError([(line, _unparsed(text, line, error.problem))]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = ord(text[error.position])
        raise YamlError([(line, f"holds the control character U+{code:04X}; remove it")]) from None
    except yaml.YAMLError as error:
        raise YamlError([(0, f"not YAML: {type(error).__name__}")]) from None
    if root is None:
        raise YamlError([(0, "the file is empty")])
    if not isinstance(root, yaml.MappingNode):
        raise YamlError([(0, "the file must hold keys and values")])
    problems: list[Problem] = []
    section = _section(root, "", problems)
    if problems:
        raise YamlError(problems)
    return section


def _without_quotes(problem: str | None) -> str:
    """Keep the parser's sentence up to where it could quote the file; signs do no harm."""
    text = _SIGN.sub(r"\1", problem or "unreadable")
    return text.split("'")[0].split('"')[0].strip(" ,")


def _refuse_features(text: str) -> None:
    depth = 0
    problems: list[Problem] = []
    documents = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        line = 0 if event.start_mark is None else event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            problems.append((line, "anchors and aliases (& and *) are not read; quote the value"))
        if getattr(event, "tag", None) is not None:
            problems.append((line, "tags (!) are not read; quote the value"))
        documents += isinstance(event, yaml.DocumentStartEvent)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            problems.append((line, f"nested deeper than {_MAX_DEPTH}"))
            break
    if documents > 1:
        problems.append((0, "the file holds more than one document"))
    if problems:
        raise YamlError(problems)


def _section(node: yaml.MappingNode, path: str, problems: list[Problem]) -> Section:
    section: dict[str, Entry] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        key = _scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
        if not isinstance(key, str):
            problems.append((line, f"{path or 'top level'}: a key must be a text"))
            continue
        if key in section:
            problems.append((line, f"{path}{key}: given twice, first on line {section[key].line}"))
            continue
        section[key] = Entry(line, _value(value_node, f"{path}{key}.", problems))
    return section


def _value(node: yaml.Node, path: str, problems: list[Problem]) -> object:
    if isinstance(node, yaml.MappingNode):
        return _section(node, path, problems)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, path, problems) for item in node.value]
    if node.tag.endswith(":int") and _OCTAL.fullmatch(node.value):
        line = node.start_mark.line + 1
        reason = (
            "a number that begins with 0 is octal in YAML; write it without the 0, or in quotes"
        )
        problems.append((line, f"{path.rstrip('.')}: {reason}"))
    return _scalar(node)


def plain_scalar(text: str) -> object:
    """The value that a text would have in a file, without quotes: a number, a boolean or a text."""
    resolver: Any = yaml.SafeLoader("")  # Any: `resolve` has no types
    tag: str = resolver.resolve(yaml.ScalarNode, text, (True, False))
    if not tag.endswith((":int", ":float", ":bool")) or _OCTAL.fullmatch(text):
        return text
    return _scalar(yaml.ScalarNode(tag, text))


def _scalar(node: yaml.Node) -> object:
    """Resolve one scalar; what YAML reads as a date or a base-60 number stays text."""
    kind = node.tag.rpartition(":")[2]
    if kind in {"timestamp", "binary"} or (kind in {"int", "float"} and ":" in node.value):
        return node.value
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError):
        return node.value
