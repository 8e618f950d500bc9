"""Write Prometheus' text format."""


def label_value(text: str) -> str:
    """A label's value in its quotes."""
    escaped = text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f'"{escaped}"'
