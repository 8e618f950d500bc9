"""Check the rules between GaussDB's logical decoding options.

The rows are in `options`, the classes in `option`. Validation, the plan that ``gaussdecode check`` prints,
START_REPLICATION's text and docs/configuration.md are made from the table.

An option is never tried and dropped on an error: the connection is lost then, and a typing error would look
like an old server.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from gaussdecode.settings.option import AUTO, Option, Section, ServerProfile, SourceKind, Support
from gaussdecode.settings.options import OPTIONS

__all__ = ["BY_NAME", "SourceKind", "given_decoders", "refusals"]

_NO_ADVANCE: Final = (
    "true is possible with parallel-decode-num 1 only. In parallel decoding the server "
    "reports how far it has read, not how far it has sent, so the slot would skip "
    "transactions. Leave it out; skip-empty-xacts: false moves an idle slot"
)
BY_NAME: Final[Mapping[str, Option]] = {option.name: option for option in OPTIONS}


def given_decoders(given: Mapping[str, object], kind: SourceKind) -> object:
    """What holds for ``parallel-decode-num``: a number, or `AUTO`."""
    name = "parallel-decode-num"
    return given.get(name, BY_NAME[name].effective_default(kind, is_parallel=False))


def refusals(
    given: Mapping[str, object], kind: SourceKind, server: ServerProfile | None = None
) -> Iterator[tuple[str, str]]:
    """Find options that do not apply together or that nobody can do.

    Args:
        given: options that the configuration sets, with values of the right type.
        kind: kind of the source.
        server: the server of kind gaussdb; None before it is known, which refuses only what
            no version of any product can do.

    Yields:
        The option's name and the reason, with what to do.
    """
    decoders = given_decoders(given, kind)
    is_serial = decoders == 1
    is_lsn_order = given.get("output-order", 0) == 0
    where = kind.value if server is None else server.name
    for name, value in given.items():
        option = BY_NAME[name]
        supports = option.candidates(kind, server)
        if option.section is Section.PARALLEL and is_serial:
            yield name, "applies only with parallel-decode-num from 2 to 20; leave it out"
        elif option.section is Section.SERIAL and decoders not in (1, AUTO):
            yield name, "applies only with parallel-decode-num 1; leave it out"
        elif (
            option.name == "auto-advance" and value and kind is SourceKind.GAUSSDB and not is_serial
        ):
            yield name, _NO_ADVANCE
        elif not any(support.can_have(value) for support in supports):
            spelled = option.type.show(value)
            yield name, f"{spelled} is not possible on {where}: {supports[0].problem(value)}"
        elif _needs_csn_order(option, supports) and is_lsn_order:
            yield name, "applies only with output-order 1; leave it out"


def _needs_csn_order(option: Option, supports: tuple[Support, ...]) -> bool:
    """The server takes the options of distributed decoding in CSN order only."""
    is_distributed = option.section is Section.DISTRIBUTED
    return is_distributed and any(support.is_passed_on for support in supports)
