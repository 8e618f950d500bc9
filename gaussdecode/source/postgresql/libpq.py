"""Find the functions of the libpq that psycopg loaded, and of no other.

`psycopg.pq` has three implementations. Two of them are extension modules linked to their
own libpq, whose functions are found through the module's handle; the third opened a
library itself. The addresses go to the receive loop. A second libpq in one process would
read a ``PGconn`` it did not make, so the version must agree with psycopg's, and the socket
of a connection with what psycopg says of it.
"""

import ctypes
import dataclasses
import importlib
import threading
from typing import Final

import psycopg  # noqa: F401 - psycopg_binary and psycopg_c want it imported before them
from psycopg import pq
from psycopg.pq.abc import PGconn

from gaussdecode.errors import ConfigError

FUNCTIONS: Final = ("PQgetCopyData", "PQconsumeInput", "PQputCopyData", "PQflush", "PQfreemem")
_REASON_BYTES: Final = 256  # as the manual has it
_VERBOSE: Final = 2  # PQERRORS_VERBOSE: messages carry their SQLSTATE


HIDDEN_READS: Final = 1024
"""Reads that empty what OpenSSL reads ahead, at 16 KiB and records of a few bytes; arbitrary."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReadAhead:
    """TLS of a connection that takes all that has arrived from the socket, not a record at a time.

    What it holds does not show by `poll`, nor to libpq, which reads one record at each call.

    Attributes:
        ssl: address of the ``SSL``.
        has_pending: address of SSL_has_pending, which tells whether it holds something.
    """

    ssl: int
    has_pending: int

    def is_pending(self) -> bool:
        """Whether it holds something, be it part of a record."""
        function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self.has_pending)
        return bool(function(self.ssl))


@dataclasses.dataclass(frozen=True, slots=True)
class LibPq:
    """Addresses of libpq's functions.

    Attributes:
        implementation: psycopg's: ``binary``, ``c`` or ``python``.
        version: such as 180006.
        addresses: addresses of `FUNCTIONS`, by name.
        library: resolves every other function.
    """

    implementation: str
    version: int
    addresses: dict[str, int]
    library: ctypes.CDLL = dataclasses.field(repr=False)

    def check_connection(self, connection: PGconn) -> None:
        """Make sure that both sides mean the same ``PGconn``.

        Raises:
            ConfigError: they name different sockets.
        """
        function = self.library.PQsocket
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_int
        seen = function(address_of(connection))
        if seen != connection.socket:
            raise ConfigError(
                f"libpq's PQsocket says {seen}, psycopg ({self.implementation}) says "
                f"{connection.socket}: two different libpq are loaded; reinstall psycopg"
            )

    def read_ahead(self, connection: PGconn) -> ReadAhead | None:
        """Have TLS read ahead from now on; None where it is not OpenSSL's, or cannot be asked.

        The functions are those of the library that this libpq is linked to.
        """
        try:
            find = self.library.PQsslStruct
            begin = self.library.SSL_set_read_ahead
            has_pending = _address(self.library, "SSL_has_pending")
        except AttributeError:
            return None
        find.argtypes, find.restype = [ctypes.c_void_p, ctypes.c_char_p], ctypes.c_void_p
        ssl = find(address_of(connection), b"OpenSSL")
        if not ssl:
            return None
        begin.argtypes, begin.restype = [ctypes.c_void_p, ctypes.c_int], None
        begin(ssl, 1)
        return ReadAhead(ssl, has_pending)

    def cancel(self, connection: PGconn) -> None:
        """Have the server give up the command that runs; does not wait for it.

        The request goes over a connection of its own, for which libpq waits without end, and psycopg
        would hold Python's lock meanwhile: no thread of the process would move.
        """
        take, send, free = (
            getattr(self.library, name) for name in ("PQgetCancel", "PQcancel", "PQfreeCancel")
        )
        take.argtypes, take.restype = [ctypes.c_void_p], ctypes.c_void_p
        send.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
        free.argtypes, free.restype = [ctypes.c_void_p], None
        request = take(address_of(connection))
        if not request:
            return  # nobody is there any more

        def ask() -> None:
            send(request, ctypes.create_string_buffer(_REASON_BYTES), _REASON_BYTES)
            free(request)

        threading.Thread(target=ask, name="canceller", daemon=True).start()

    def make_verbose(self, connection: PGconn) -> None:
        """Have error texts carry their SQLSTATE, also while connecting."""
        function = self.library.PQsetErrorVerbosity
        function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_int], ctypes.c_int
        function(address_of(connection), _VERBOSE)


def find_libpq() -> LibPq:
    """Find the functions of psycopg's libpq.

    Raises:
        ConfigError: psycopg has an unknown implementation, or the functions found belong
            to another libpq.
    """
    implementation = str(pq.__impl__)
    try:
        library = _library(implementation)
        addresses = {name: _address(library, name) for name in FUNCTIONS}
        version = int(library.PQlibVersion())
    except (ImportError, OSError, AttributeError) as error:
        raise ConfigError(
            f"no libpq behind psycopg's implementation {implementation!r} "
            f"({type(error).__name__}); reinstall psycopg with its [binary] extra"
        ) from error
    if version != pq.version():
        raise ConfigError(
            f"libpq found is version {version}, psycopg ({implementation}) uses {pq.version()}; "
            "reinstall psycopg"
        )
    return LibPq(implementation, version, addresses, library)


def _library(implementation: str) -> ctypes.CDLL:
    if implementation == "python":
        module = importlib.import_module("psycopg.pq._pq_ctypes")
        library = module.pq
        assert isinstance(library, ctypes.CDLL)
        return library
    module = importlib.import_module(f"psycopg_{implementation}.pq")
    if module.__file__ is None:
        raise ImportError(module.__name__)
    return ctypes.CDLL(module.__file__)


def _address(library: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    if not address:
        raise AttributeError(name)
    return address


def address_of(connection: PGconn) -> int:
    """Address of the ``PGconn``, for libpq's functions."""
    address: int = connection.pgconn_ptr  # type: ignore[attr-defined]  # not in psycopg's protocol
    return address
