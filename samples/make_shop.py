"""Write the shop's sample messages: one history in five dialects, and the rows it ends with.

    python samples/make_shop.py           write the files next to this script
    python samples/make_shop.py --check   write nothing; exit 1 if a file is not what would be written
    python samples/make_shop.py --demo FOLDER
                                          write the examples of conf/ into a folder of their own, with the clocks moved so
                                          that the history ends now; a folder that has them is left as it is

Needs nothing but Python. ``shop_history`` is what happened, ``shop_dialects`` how each product writes it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from shop_dialects import DIALECTS, moment_text
from shop_history import KEYS, START, TYPES, Shop, history

HERE = Path(__file__).resolve().parent
CONF = HERE.parent / "conf"


def files(folder: Path = HERE, start: int = START) -> dict[Path, str]:
    """Every file's text by its path, of a history that begins at ``start`` (milliseconds since 1970 UTC)."""
    shop = history(start)
    found = {folder / "expected" / f"{table}.json": _expected(shop, table) for table in KEYS}
    for name, dialect in DIALECTS.items():
        for file, lines in dialect(shop.events).items():
            found[folder / name / file] = "".join(line + "\n" for line in lines)
    return found


def demo(folder: Path, now: float) -> dict[Path, str]:
    """The example pipelines in a folder of their own, with the messages of a history that ends now (seconds since 1970).

    The samples keep their date, because tests and pages name it: a first look at them would show years of lag.
    """
    length = history().clock - START
    moved = files(folder / "messages", (int(now) * 1000 - length) // 1000 * 1000)
    pipelines = {
        folder / file.name: file.read_text("utf-8").replace("../samples/", "./messages/")
        for file in sorted(CONF.glob("*.yaml"))
    }
    return moved | pipelines


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
    if arguments[:1] == ["--demo"]:
        folder = Path(arguments[1])
        wanted = demo(folder, time.time())
        if any(path.exists() for path in wanted):
            sys.stdout.write(f"{folder} has its messages; `make clean demo` begins again\n")
            return 0
        _write(wanted)
        return 0
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
    _write(wanted)
    sys.stdout.write(f"{len(wanted)} files written\n")
    return 0


def _write(texts: dict[Path, str]) -> None:
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
