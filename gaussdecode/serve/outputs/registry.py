"""Output plug-ins by name."""

import functools
from collections.abc import Callable
from typing import Final

from gaussdecode.serve.block import Output
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.outputs.gauss import PLUGINS as GAUSS_PLUGINS
from gaussdecode.serve.outputs.gauss import GaussOutput
from gaussdecode.serve.outputs.options import Options
from gaussdecode.serve.outputs.pgoutput import PgOutput
from gaussdecode.serve.outputs.test_decoding import TestDecoding
from gaussdecode.serve.outputs.wal2json import Wal2Json

UNDEFINED_FILE: Final = "58P01"

PLUGINS: Final[dict[str, Callable[[Options], Output]]] = {
    "pgoutput": PgOutput,
    "test_decoding": TestDecoding,
    "wal2json": Wal2Json,
    **{name: functools.partial(GaussOutput, name) for name in GAUSS_PLUGINS},
}
"""A plug-in with the options of a client, by the name that a slot is created with."""


def make_output(plugin: str, options: Options) -> Output:
    """Make the plug-in of a client.

    Args:
        plugin: name.
        options: text of each option that the client gave; None for one without a value.

    Raises:
        ServeError: there is no such plug-in, or an option is wrong.
    """
    if plugin not in PLUGINS:
        raise ServeError(
            UNDEFINED_FILE,
            f'could not access file "{plugin}": No such file or directory',
            hint=f"plug-ins that are served: {', '.join(PLUGINS)}",
        )
    return PLUGINS[plugin](options)
