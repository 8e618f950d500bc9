"""Parse command-line arguments; errors name the expected form."""

import argparse
import ipaddress
from typing import TYPE_CHECKING

from gaussdecode.errors import ConfigError
from gaussdecode.model.lsn import Lsn
from gaussdecode.settings.types import Address, AddressType, parse_size

if TYPE_CHECKING:
    from gaussdecode.spark.log.place import Place


def lsn(text: str) -> Lsn:
    """Read a WAL position."""
    try:
        return Lsn.parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no position like 16/B374D848") from None


def count(text: str) -> int:
    """Read a whole number of at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def seconds(text: str) -> float:
    """Read a number of seconds above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return number


def size(text: str) -> int:
    """Read a number of bytes with its unit."""
    try:
        return parse_size(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'{text!r} is no size like "128MiB"') from None


def place(text: str) -> "Place":
    """Read a directory or a URL."""
    from gaussdecode.spark.log.place import place_of

    try:
        return place_of(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def address(text: str) -> Address:
    """Read a listening address; it must be a loopback address, because the page asks for no password."""
    try:
        found = AddressType().read(text)
        is_loopback = found.host == "localhost" or ipaddress.ip_address(found.host).is_loopback
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no address like 127.0.0.1:19186") from error
    if not is_loopback:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no loopback address; from elsewhere: ssh -L 19186:127.0.0.1:19186 HOST"
        )
    return found
