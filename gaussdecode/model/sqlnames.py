"""Quote names and strings for the SQL of PostgreSQL and GaussDB."""

import re
from typing import Final

_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_$]*")


def quoted_name(name: str) -> str:
    """Put a name in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def name_as_needed(name: str) -> str:
    """Quote a name where the server would, keywords aside."""
    return name if _PLAIN.fullmatch(name) else quoted_name(name)


def quoted_text(text: str) -> str:
    """Put a string in single quotes; a backslash is itself."""
    return "'" + text.replace("'", "''") + "'"
