"""Options of a client, as the server's plug-ins read them."""

from collections.abc import Collection, Mapping
from typing import Final

from gaussdecode.serve.errors import ServeError

INVALID_PARAMETER_VALUE: Final = "22023"

Options = Mapping[str, str | None]
"""Text of each option that a client gave; None for one without a value."""


def parse_bool(text: str) -> bool | None:
    """Read a boolean as the server does: a beginning of a word that is of no other; None for none."""
    folded = text.lower()
    if not folded:
        return None
    for word, value in (("true", True), ("false", False), ("yes", True), ("no", False)):
        if word.startswith(folded):
            return value
    if folded in {"on", "1"}:
        return True
    return False if folded in {"of", "off", "0"} else None


def boolean(options: Options, name: str, *, default: bool, bare: bool = True) -> bool:
    """Read an option that is true or false.

    Args:
        options: of the client.
        name: of the option.
        default: where it is absent.
        bare: where it has no value.

    Raises:
        ServeError: it has another value.
    """
    if name not in options:
        return default
    text = options[name]
    if text is None:
        return bare
    value = parse_bool(text)
    if value is None:
        raise ServeError(
            INVALID_PARAMETER_VALUE, f'could not parse value "{text}" for parameter "{name}"'
        )
    return value


def refuse_others(options: Options, known: Collection[str]) -> None:
    """Refuse options that a plug-in does not have.

    Raises:
        ServeError: there is one.
    """
    for name, text in options.items():
        if name not in known:
            given = "(null)" if text is None else text
            raise ServeError(INVALID_PARAMETER_VALUE, f'option "{name}" = "{given}" is unknown')
