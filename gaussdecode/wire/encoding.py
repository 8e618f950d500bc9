r"""The encodings that a database can have, and how their letters are spelled in UTF-8.

The server would translate by itself, and refuse a whole row, for good, for one byte that it has
no letter for. So everything is taken as the server has it, and translated here, letter by
letter, as the server does; `_encoding` does so for values. Where a codec of Python's has
other letters than the server's tables, the server's are written down below. A code is only
translated when it is the one that its letter would be translated back to: so what was
translated names its value exactly, and what was not is kept, escaped.

*Names* in which a byte has no letter are spelled with ``\\xNN`` in its place, and a backslash that
would read so by itself as ``\\x5c``: no two names are spelled alike, and `raw_name` finds
the bytes again. In UTF-8 and SQL_ASCII, of which nobody knows what it holds, that is a byte
outside of any valid sequence.

References:
    PostgreSQL manual, "Character Set Support"; src/backend/utils/mb/Unicode.
"""

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gaussdecode.errors import ConfigError
from gaussdecode.wire._encoding import letters_of, translate

_Runs = tuple[tuple[int, str], ...]

_SHIFT_TWO: Final = 0x8E
_SHIFT_THREE: Final = 0x8F
_GRAPHIC: Final = range(0xA1, 0xFF)
_HIGH: Final = range(0x80, 0x100)
# A code of several bytes and the letters from it on, one code each.
_EUC_JP: Final[_Runs] = (
    (0xA1C1, "\uff5e\u2225"),
    (0xA1DD, "\uff0d"),
    (0xA1F1, "\uffe0\uffe1"),
    (0xA2CC, "\uffe2"),
    (0xADA1,
     ("\u2460\u2461\u2462\u2463\u2464\u2465\u2466\u2467\u2468\u2469\u246a\u246b"
     "\u246c\u246d\u246e\u246f\u2470\u2471\u2472\u2473\u2160\u2161\u2162\u2163"
     "\u2164\u2165\u2166\u2167\u2168\u2169")),
    (0xADC0,
     ("\u3349\u3314\u3322\u334d\u3318\u3327\u3303\u3336\u3351\u3357\u330d\u3326"
     "\u3323\u332b\u334a\u333b\u339c\u339d\u339e\u338e\u338f\u33c4\u33a1")),
    (0xADDF,
     ("\u337b\u301d\u301f\u2116\u33cd\u2121\u32a4\u32a5\u32a6\u32a7\u32a8\u3231"
     "\u3232\u3239\u337e\u337d\u337c")),
    (0xADF3, "\u222e\u2211"),
    (0xADF8, "\u221f\u22bf"),
    (0x8FA2C3, "\uffe4"),
    (0x8FF3F3, "\u2170\u2171\u2172\u2173\u2174\u2175\u2176\u2177\u2178\u2179"),
    (0x8FF4A9, "\uff07\uff02"),
    (0x8FF4AE,
     ("\u70bb\u4efc\u50f4\u51ec\u5307\u5324\ufa0e\u548a\u5759\ufa0f\ufa10\u589e"
     "\u5bec\u5cf5\u5d53\ufa11\u5fb7\u6085\u6120\u654e\u663b\u6665\ufa12\uf929"
     "\u6801\ufa13\ufa14\u6a6b\u6ae2\u6df8\u6df2\u7028\ufa15\ufa16\u7501\u7682"
     "\u769e\ufa17\u7930\ufa18\ufa19\ufa1a\ufa1b\u7ae7\ufa1c\ufa1d\u7da0\u7dd6"
     "\ufa1e\u8362\ufa1f\u85b0\ufa20\ufa21\u8807\ufa22\u8b7f\u8cf4\u8d76\ufa23"
     "\ufa24\ufa25\u90de\ufa26\u9115\ufa27\ufa28\u9592\uf9dc\ufa29\u973b\u974d"
     "\u9751\ufa2a\ufa2b\ufa2c\u999e\u9ad9\u9b72\ufa2d\u9ed1")),
)  # fmt: skip
_EUC_KR: Final[_Runs] = ((0xA2E8, "\u327e"), (0xA4D4, "\u3164"))
_EUC_JIS_2004: Final[_Runs] = (
    (0xA1B1, "\u203e"),
    (0xA1BD, "\u2014"),
    (0xA1EF, "\xa5"),
    (0xA2D6, "\uff5f\uff60"),
)
# Rows of JIS X 0213's second plane. In the other rows Python's codec has JIS X 0212's letters.
_SECOND_PLANE: Final = frozenset(
    {0xA1, *range(0xA3, 0xA6), 0xA8, *range(0xAC, 0xB0), *range(0xEE, 0xFF)}
)
_PLANES: Final = (0xA1, 0xA2)  # of CNS 11643, that the server knows
# Codes of which the server knows no letter, though the codec does.
_WITHOUT: Final[Mapping[str, tuple[bytes, ...]]] = {
    "EUC_JP": (b"\x8f\xa2\xb7",),
    "EUC_TW": tuple(
        head + code
        for head in (b"", b"\x8e\xa1")
        for code in (b"\xa7\xa8", b"\xa7\xaf", b"\xa7\xb4")
    ),
}
_ESCAPABLE: Final = re.compile(r"\\(?=x[0-9a-f]{2})|[\udc80-\udcff]")
_ESCAPED: Final = re.compile(r"\\x([89a-f][0-9a-f]|5c)")


class Encoding:
    """One encoding.

    Args:
        number: of our own, for decoders; 0 passes everything on as it is.
        name: the server's.
        codec: of Python; ``iconv:`` and its name for one that only the C library has; None
            where nothing but ASCII is known.
        letters: the server's, where the codec has others.
    """

    def __init__(self, number: int, name: str, codec: str | None, letters: _Runs = ()) -> None:
        self.number = number
        self.name = name
        self._codec = codec
        self._runs = letters

    @property
    def is_known(self) -> bool:
        """Its letters are known; else all that is not ASCII is kept escaped."""
        return self.number == 0 or self._codec is not None

    @functools.cached_property
    def letters(self) -> Mapping[bytes, str]:
        """The letter of each code beyond ASCII; no letter twice."""
        if self._codec is None:
            return {}
        by_letter: dict[str, bytes] = {}
        found = self._all_letters()
        for code in sorted(found, key=lambda code: (len(code), code)):
            by_letter.setdefault(found[code], code)
        return {code: letter for letter, code in by_letter.items()}

    @functools.cached_property
    def _codes(self) -> Mapping[str, bytes]:
        return {letter: code for code, letter in self.letters.items()}

    def _all_letters(self) -> dict[bytes, str]:
        name = self._codec or ""
        if name.startswith("iconv:"):
            found = letters_of(name.removeprefix("iconv:"), _traditional())
        else:
            is_multiple = self.name.startswith("EUC_")
            found = dict(_decoded(name, _double() if is_multiple else _single()))
        if self.name == "EUC_JIS_2004":
            found = {c: v for c, v in found.items() if len(c) < 3 or c[1] in _SECOND_PLANE}
        for code in _WITHOUT.get(self.name, ()):
            found.pop(code, None)
        for first, letters in self._runs:
            size = (first.bit_length() + 7) // 8
            for number, letter in enumerate(letters, first):
                found[number.to_bytes(size, "big")] = letter
        return found

    def decode(self, raw: bytes) -> str:
        """Translate a text; bytes without a letter become lone surrogates."""
        if self.number == 0 or raw.isascii():
            return raw.decode("utf-8", "surrogateescape")
        kept, is_whole = translate(self.number, raw)
        if is_whole:
            return kept.decode()
        plain = re.sub(rb"\\\\|\\x([0-9a-f]{2})", _unkept, kept)
        return plain.decode("utf-8", "surrogatepass")

    def encode(self, text: str) -> bytes:
        """Translate back what `decode` gave.

        Raises:
            ConfigError: it holds a letter that the encoding does not have.
        """
        if self.number == 0 or text.isascii():
            return text.encode("utf-8", "surrogateescape")
        return b"".join(self._encoded(text))

    def _encoded(self, text: str) -> Iterator[bytes]:
        at = 0
        while at < len(text):
            for size in (2, 1):  # a letter may be made of two
                code = self._codes.get(text[at : at + size])
                if code is not None:
                    break
            else:
                size, code = 1, self._plain(text[at])
            at += size
            yield code

    def _plain(self, letter: str) -> bytes:
        try:
            return letter.encode("ascii", "surrogateescape")
        except UnicodeEncodeError:
            raise ConfigError(
                f"U+{ord(letter):04X} has no place in the database's encoding, {self.name}"
            ) from None

    def name_of(self, raw: bytes) -> str:
        """Spell a name that the server has; see the head of this module."""
        return spelled_name(self.decode(raw))

    def to_utf8(self, raw: bytes) -> bytes:
        """Translate a value; what has no letter is kept escaped."""
        return translate(self.number, raw)[0]


def _unkept(match: re.Match[bytes]) -> bytes:
    if match[1] is None:
        return b"\\"
    return chr(0xDC00 + int(match[1], 16)).encode("utf-8", "surrogatepass")


def spelled_name(text: str) -> str:
    """Spell a name, of which `Encoding.decode` gave the text."""
    return _ESCAPABLE.sub(lambda found: f"\\x{ord(found[0]) & 0xFF:02x}", text)


def readable(text: str) -> str:
    """A value, of which `Encoding.decode` gave the text; bytes that are no letter are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def raw_name(name: str) -> str:
    """Undo `spelled_name`."""

    def unspelled(match: re.Match[str]) -> str:
        byte = int(match[1], 16)
        return chr(byte) if byte < 0x80 else chr(0xDC00 + byte)

    return _ESCAPED.sub(unspelled, name)


# ---- code spaces


def _single() -> Iterator[bytes]:
    return (bytes((byte,)) for byte in _HIGH)


def _double() -> Iterator[bytes]:
    """Codes of two and three bytes, of which the last ones are graphic."""
    firsts = (bytes((byte,)) for byte in (_SHIFT_TWO, *_GRAPHIC))
    pairs = (first + bytes((byte,)) for first in firsts for byte in _GRAPHIC)
    triples = (bytes((_SHIFT_THREE, a, b)) for a, b in itertools.product(_GRAPHIC, _GRAPHIC))
    return itertools.chain(pairs, triples)


def _traditional() -> Iterator[bytes]:
    """Codes of EUC_TW."""
    pairs = (bytes(pair) for pair in itertools.product(_GRAPHIC, _GRAPHIC))
    planes = (bytes((_SHIFT_TWO, *rest)) for rest in itertools.product(_PLANES, _GRAPHIC, _GRAPHIC))
    return itertools.chain(pairs, planes)


def _decoded(codec: str, codes: Iterable[bytes]) -> Iterator[tuple[bytes, str]]:
    for code in codes:
        try:
            yield code, code.decode(codec)
        except UnicodeDecodeError:
            continue


_LATIN: Final = {
    "LATIN1": "latin-1", "LATIN2": "iso8859-2", "LATIN3": "iso8859-3", "LATIN4": "iso8859-4",
    "LATIN5": "iso8859-9", "LATIN6": "iso8859-10", "LATIN7": "iso8859-13", "LATIN8": "iso8859-14",
    "LATIN9": "iso8859-15", "LATIN10": "iso8859-16",
    "ISO_8859_5": "iso8859-5", "ISO_8859_6": "iso8859-6", "ISO_8859_7": "iso8859-7",
    "ISO_8859_8": "iso8859-8", "KOI8R": "koi8-r", "KOI8U": "koi8-u",
    "WIN866": "cp866", "WIN874": "cp874",
    **{f"WIN{number}": f"cp{number}" for number in range(1250, 1259)},
}  # fmt: skip
_TABLES: Final[tuple[tuple[str, str | None, _Runs], ...]] = (
    *((name, codec, ()) for name, codec in _LATIN.items()),
    ("EUC_JP", "euc_jp", _EUC_JP),
    ("EUC_CN", "gb2312", ()),
    ("EUC_KR", "euc_kr", _EUC_KR),
    ("EUC_JIS_2004", "euc_jis_2004", _EUC_JIS_2004),
    ("EUC_TW", "iconv:EUC-TW", ()),
)

UTF8: Final = Encoding(0, "UTF8", "utf-8")
UNKNOWN: Final = Encoding(1, "MULE_INTERNAL", None)
ENCODINGS: Final = (
    UTF8,
    UNKNOWN,
    *(Encoding(number, *table) for number, table in enumerate(_TABLES, 2)),
)
"""By number."""
_BY_NAME: Final = {encoding.name: encoding for encoding in ENCODINGS} | {
    "SQL_ASCII": UTF8,
    "": UTF8,
}


def find_encoding(name: str) -> Encoding:
    """The encoding of a database.

    Args:
        name: the server's, as in ``server_encoding``; one that nobody knows is taken for
            one whose letters are not known.
    """
    return _BY_NAME.get(name, UNKNOWN)
