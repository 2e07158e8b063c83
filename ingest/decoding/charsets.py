"""Character sets by the names that MySQL and Oracle give them."""

from __future__ import annotations

from functools import lru_cache

_SAME = "ascii gbk gb2312 gb18030 big5 cp932 cp1250 cp1251 cp1256 cp1257 cp850 cp852 cp866"
CHARSETS = {
    **{name: name for name in _SAME.split()},
    "utf8": "utf-8", "utf8mb3": "utf-8", "utf8mb4": "utf-8", "al32utf8": "utf-8", "ucs2": "utf-16-be",
    "utf16": "utf-16-be", "al16utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be",
    "latin1": "cp1252", "latin2": "iso8859-2", "latin5": "iso8859-9", "latin7": "iso8859-13", "greek": "iso8859-7",
    "hebrew": "iso8859-8", "koi8r": "koi8-r", "koi8u": "koi8-u", "tis620": "tis-620", "zhs16gbk": "gbk",
    "euckr": "euc_kr", "ujis": "euc_jp", "sjis": "shift_jis",
}  # fmt: skip
"""Names, lower case and without ``_`` and ``-``, as Python codecs."""


def decoded(data: bytes, charset: str) -> str:
    """Bytes in a character set as text.

    Raises:
        ValueError: the set is not known, or the bytes are not of it.
    """
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


@lru_cache(maxsize=256)
def _codec(charset: str) -> str | None:
    return CHARSETS.get(charset.strip().lower().replace("_", "").replace("-", ""))


_LATIN1_ONLY = frozenset(b"\x81\x8d\x8f\x90\x9d")
