"""Names as no sane person gives them, for databases, schemas, tables and columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from random import Random

WRITTEN = [
    "..", ".", "../../escape", "/etc/passwd", "\\..\\x", "~", "~~", "~~~empty", "%2e%2e%2f", "a/b", "a\\b", "a.b",
    "`", "``", "a`b", "'", "a'b", '"', 'a"b', "a;b", "a; DROP TABLE x", "x' OR '1'='1", "--", "/* a */", "a--b", "a#b",
    "${a}", "${env:HOME}", "{table}", "{}", "{0}", "%s", "%d", "$% ^,& *(", "a b", " a", "a ", "  ", "\t", "\n", "a\nb", "\r",
    "\x00", "a\x00b", "\x1f", "\x7f", "\u200b", "\u202e", "\ufeff", "\u00a0", "\u2028", "a,b", "a=b", "(a)", "[a]", "a:b",
    "a|b", "a<b>", "a?b", "a*b", "*", "a&b", "a!b", "a@b", "a+b", "-", "-a", "--output", "_", "_a", "__", "_delta_log",
    "_metadata", "_change_type", "_commit_version", "_METADATA", "_row_id_", "filePath", "filename", "file_row_number", "rowIndexCol", "__HIVE_DEFAULT_PARTITION__", "_gone", "_has0", "%gone", "_k0", "_v0",
    "half", "key", "n", "m", "s", "t", "a", "A", "aA", "Aa", "b", "op", "before", "after", "order_key", "partial", "batch",
    "select", "SELECT", "from", "table", "null", "NULL", "true", "None", "nan", "order", "group", "delta", "parquet",
    "con", "nul", "aux.txt", "a.", "a..b", ".a", "a.json", "a.parquet", "part-00000", "0", "1", "007", "1e5", "-1", "1.5",
    "é", "e\u0301", "ß", "ẞ", "ss", "SS", "K", "k", "\u212a", "ı", "I", "i", "İ", "ſ", "Σ", "σ", "ς", "Å", "\u212b",
    "表", "数据库", "таблица", "جدول", "😀", "👩‍👩‍👧", "\U0001f1e9\U0001f1ea", "𝕏", "a_x20b", "a_x2cb", "_x", "_x2e",
]  # fmt: skip


def names(wanted: int, *, written: bool = True) -> Iterator[str]:
    """Distinct names: the written ones, then random ones over the same alphabet, some of them very long."""
    random = Random(4)
    alphabet = sorted({char for name in WRITTEN for char in name})
    made = dict.fromkeys(WRITTEN if written else [])
    for number in count():
        if len(made) >= wanted:
            break
        text = "".join(random.choices(alphabet, k=random.choice((1, 2, 3, 8, 20))))
        made[text if number % 50 else (text * 300)[:1000] + str(number)] = None
    return islice(made, wanted)
