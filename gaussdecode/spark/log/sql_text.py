"""Names and texts as Spark's SQL takes them."""

import re
from collections.abc import Sequence
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def quoted(name: str) -> str:
    """A name of one part, as Spark's SQL and expressions take it."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text, of which Spark puts nothing of its settings or environment in place of ``${name}``."""
    text = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + text.replace("${", "\\u0024{") + "'"


def dotted(name: Sequence[str]) -> str:
    """A name of parts, with quotes only where a part needs them."""
    return ".".join(part if _PLAIN.fullmatch(part) else quoted(part) for part in name)
