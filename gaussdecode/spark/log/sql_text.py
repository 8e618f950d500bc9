"""Quote names and texts for Spark's SQL."""

import re
from collections.abc import Sequence
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def quoted(name: str) -> str:
    """Quote a name of one part, for Spark's SQL and expressions."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Write a text as a literal; Spark does not substitute ``${name}`` in it."""
    text = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + text.replace("${", "\\u0024{") + "'"


def dotted(name: Sequence[str]) -> str:
    """Join the parts of a name with dots, with quotes only around parts that need them."""
    return ".".join(part if _PLAIN.fullmatch(part) else quoted(part) for part in name)
