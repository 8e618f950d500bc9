"""Names and texts as Spark's SQL takes them."""


def quoted(name: str) -> str:
    """A name of one part, as Spark's SQL and expressions take it."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text, of which Spark puts nothing of its settings or environment in place of ``${name}``."""
    text = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + text.replace("${", "\\u0024{") + "'"
