"""Words that depend on a number."""


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Count things: ``1 table``, ``2 tables``, ``1,000 entries``.

    Args:
        number: of them.
        noun: for one of them.
        plural: for several; the noun with an s when None.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
