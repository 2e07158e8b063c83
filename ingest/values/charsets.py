"""Character sets by the names that MySQL and Oracle give them, and the characters that they lack.

A MySQL column keeps ``?`` for each character that its character set lacks, if the session is not strict.  The sets
were compared with MariaDB's, character by character: most are Python's, and ``_DISPUTED`` has the differences.
"""

from __future__ import annotations

import re

from ingest.values.remembered import remembered

_SAME = "ascii gbk gb2312 gb18030 big5 cp932 cp1250 cp1251 cp1256 cp1257 cp850 cp852 cp866"
CHARSETS = {
    **{name: name for name in _SAME.split()},
    "utf8": "utf-8", "utf8mb3": "utf-8", "utf8mb4": "utf-8", "al32utf8": "utf-8", "ucs2": "utf-16-be",
    "utf16": "utf-16-be", "al16utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be",
    "latin1": "cp1252", "latin2": "iso8859-2", "latin5": "iso8859-9", "latin7": "iso8859-13", "greek": "iso8859-7",
    "hebrew": "iso8859-8", "koi8r": "koi8-r", "koi8u": "koi8-u", "tis620": "tis-620", "zhs16gbk": "gbk",
    "euckr": "euc_kr", "ujis": "euc_jp", "sjis": "shift_jis", "macroman": "mac_roman", "macce": "mac_latin2",
}  # fmt: skip
"""Names, lower case and without ``_`` and ``-``, as Python codecs."""


def decoded(data: bytes, charset: str) -> str:
    """Bytes in a character set as text; a `ValueError` if the set is not known, or the bytes are not of it."""
    codec = _codec(charset)
    if codec is None:
        raise ValueError(f"the character set {charset[:40]!r} is not known")
    try:
        return data.decode(codec)
    except UnicodeDecodeError:
        if codec != "cp1252":
            raise ValueError(f"the bytes are not {codec}") from None
        # MySQL's latin1 gives the five bytes that cp1252 leaves out their own number
        return "".join(chr(byte) if byte in _LATIN1_ONLY else bytes([byte]).decode(codec) for byte in data)


@remembered(256)
def _codec(charset: str) -> str | None:
    return CHARSETS.get(charset.strip().lower().replace("_", "").replace("-", ""))


_LATIN1_ONLY = frozenset(b"\x81\x8d\x8f\x90\x9d")


# --- what a column of a character set keeps -------------------------------------------------------

_WHOLE = frozenset("utf8mb4 utf16 utf16le utf32 gb18030".split())
_ASTRAL = "\U00010000-\U0010ffff"
_DISPUTED = {
    "utf8": re.compile(f"[{_ASTRAL}]"),  # utf8mb3 to MySQL, utf8mb4 to OceanBase
    "big5": re.compile("[\u02cd\u2574\u58bb\u5afa\u6052\u7881\u7ca7\u88cf\u92b9\uffe3\ufffd]"),
    "cp1256": re.compile("[\u0679\u0688\u0691\u06a9\u06ba\u06be\u06c1\u06d2]"),
    "cp866": re.compile("[\xa4\xb2\u207f\u2116]"),
    "cp932": re.compile("[\x80\xa2\xa3\xac\u2016\u2212\u301c\u6661\uf8f0-\uf8f3]"),
    "greek": re.compile("[\u02bc\u02bd\u037a\u2018\u2019\u20ac\u20af]"),
    "hebrew": re.compile("[\xaf\u203e]"),
    "koi8u": re.compile("[\u2022\u2219]"),
    "sjis": re.compile("[\xa5\u203e\uff3c]"),
    "tis620": re.compile(f"[\ufffd{_ASTRAL}]"),
    "ujis": re.compile("[\xa5\u203e\uff3c\ue000-\uf8ff]"),
    "swe7": re.compile(r"[^ -?A-Z_a-z]"),
}
"""Characters of which it is not known whether a set has them; of a set without a codec, all but ASCII."""


def keeps_all(charset: str) -> bool:
    """True if a set has every character."""
    return charset in _WHOLE


def stored(text: str, charset: str) -> str:
    """A text as a column of a character set keeps it: ``?`` for each character that the set lacks."""
    if text.isascii() or charset in _WHOLE:
        return text
    return "".join(character if _has(charset, character) else "?" for character in text)


def is_disputed(text: str, charset: str) -> bool:
    """True if it is not known what a column of the character set keeps of a text."""
    disputed = _DISPUTED.get(charset)
    if disputed is None:
        return _codec(charset) is None and charset not in _WHOLE and not text.isascii()
    return disputed.search(text) is not None


@remembered(65_536)
def _has(charset: str, character: str) -> bool:
    if charset in ("utf8", "utf8mb3", "ucs2"):
        return character <= "\uffff"
    if charset == "latin1" and ord(character) < 256 and ord(character) in _LATIN1_ONLY:
        return True
    try:
        character.encode(_codec(charset) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
