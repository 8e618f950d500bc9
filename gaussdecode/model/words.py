"""Choose singular or plural words by a number."""


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Count things: ``1 table``, ``2 tables``, ``1,000 entries``.

    Args:
        number: number of them.
        noun: noun for one of them.
        plural: plural for several; the noun with an s when None.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
