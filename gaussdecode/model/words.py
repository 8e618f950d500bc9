"""Spell texts for people: singular or plural by a number, and what a terminal would act on."""


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Count things: ``1 table``, ``2 tables``, ``1,000 entries``.

    Args:
        number: number of them.
        noun: noun for one of them.
        plural: plural for several; the noun with an s when None.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def printable(text: str) -> str:
    """Escape characters that a terminal would act on or not show; line ends stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
