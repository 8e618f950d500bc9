"""Names and texts as Spark's SQL takes them."""


def quoted(name: str) -> str:
    """A name of one part, as Spark's SQL and expressions take it."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
