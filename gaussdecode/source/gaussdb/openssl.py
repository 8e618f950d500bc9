"""Find the OpenSSL behind an `ssl.SSLSocket`, so that the receive loop reads from it without the GIL.

Python's `ssl` reads one TLS record at a time, each through an object and with two system calls. Where a server
sends a record for every message, that is most of the cost of receiving. The functions are those of the library
that the `_ssl` module is linked to, and no other. The connection's ``SSL *`` is in Python's object. Its
layout is checked by the other values in the object, and by the socket that OpenSSL reports for the connection.
Where anything differs, there is no pointer, and Python reads.
"""

import _ssl
import ctypes
import dataclasses
import ssl
from typing import Any, Final

FUNCTIONS: Final = (
    "SSL_read",
    "SSL_get_error",
    "ERR_clear_error",
    "ERR_peek_last_error",
    "ERR_reason_error_string",
)
_WORDS: Final = 5  # reference count, type, weak reference to the socket, SSL *, context


@dataclasses.dataclass(frozen=True, slots=True)
class OpenSsl:
    """A connection, and the functions that read from it.

    Attributes:
        address: address of the ``SSL``.
        functions: addresses of `FUNCTIONS`, by name.
    """

    address: int
    functions: dict[str, int]


def find_openssl(sock: ssl.SSLSocket) -> OpenSsl | None:
    """Find what is behind a connected socket; None where Python keeps it otherwise than is known.

    OpenSSL reads ahead from now on: what has arrived for it does not show by `pending` alone, and
    Python is not to be asked for it any more.
    """
    try:
        library = ctypes.CDLL(getattr(_ssl, "__file__", None))
        functions = {
            name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
            for name in FUNCTIONS
        }
        library.OpenSSL_version_num.restype = ctypes.c_ulong
        is_same = library.OpenSSL_version_num() == ssl.OPENSSL_VERSION_NUMBER
    except (OSError, AttributeError):  # linked so that nobody else may call it
        return None
    address = _address(sock) if is_same else None
    if address is None or not _has_socket(library, address, sock.fileno()):
        return None
    library.SSL_set_read_ahead.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.SSL_set_read_ahead(address, 1)
    return OpenSsl(address, functions)


def _address(sock: ssl.SSLSocket) -> int | None:
    held: Any = getattr(sock, "_sslobj", None)  # Any: of _ssl, which has no types
    if type(held) is not getattr(_ssl, "_SSLSocket", None):
        return None
    words = (ctypes.c_size_t * _WORDS).from_address(id(held))
    is_known = words[1] == id(type(held)) and words[4] == id(held.context)
    return words[3] if is_known and words[3] else None


def _has_socket(library: ctypes.CDLL, address: int, socket_fd: int) -> bool:
    library.SSL_get_fd.argtypes = [ctypes.c_void_p]
    return bool(library.SSL_get_fd(address) == socket_fd)
