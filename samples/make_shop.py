"""Write the shop's sample messages: one history in five dialects, and the rows it ends with.

    python samples/make_shop.py           write the files next to this script
    python samples/make_shop.py --check   write nothing; exit 1 if a file is not what would be written

Needs nothing but Python. ``shop_history`` is what happened, ``shop_dialects`` how each product writes it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from shop_dialects import DIALECTS, moment_text
from shop_history import KEYS, TYPES, Shop, history

HERE = Path(__file__).resolve().parent


def files() -> dict[Path, str]:
    """Every file's text by its path."""
    shop = history()
    found = {HERE / "expected" / f"{table}.json": _expected(shop, table) for table in KEYS}
    for name, dialect in DIALECTS.items():
        for file, lines in dialect(shop.events).items():
            found[HERE / name / file] = "".join(line + "\n" for line in lines)
    return found


def _expected(shop: Shop, table: str) -> str:
    """The table's last rows in canonical text, one row a line, by key."""
    rows = [
        {column: _text(TYPES[table][column], row[column]) for column in TYPES[table]}
        for _key, row in sorted(shop.rows[table].items())
    ]
    head = json.dumps({"keys": KEYS[table], "types": TYPES[table]})[:-1]
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return f'{head}, "rows": [\n{lines}\n]}}\n'


def _text(logical: str, value: str | int | None) -> str | None:
    if value is None or logical != "timestamp":
        return None if value is None else str(value)
    day, _, clock = moment_text(int(value)).partition(" ")
    return f"{day}T{clock.rstrip('0').rstrip('.') if '.' in clock else clock}Z"


def main(arguments: list[str]) -> int:
    """Write or check; the exit code."""
    wanted = files()
    if arguments == ["--check"]:
        wrong = [
            path for path, text in wanted.items() if not path.exists() or path.read_bytes() != text.encode()
        ]
        known = {path for folder in {path.parent for path in wanted} for path in folder.glob("*shop-*.jsonl")}
        wrong += known - wanted.keys()
        for path in wrong:
            sys.stdout.write(
                f"{path.relative_to(HERE)} is not what make_shop.py writes; run it without --check\n"
            )
        return 1 if wrong else 0
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    sys.stdout.write(f"{len(wanted)} files written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
