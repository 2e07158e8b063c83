"""Random histories of two tables, as messages in batches."""

from __future__ import annotations

import random

from tests.lakes import change, statement

TABLES = ("bins", "boxes")


def history(seed: int, batch: int) -> str:
    """Messages of a batch: rows that come, change, move and go, some late, some twice, and a new column."""
    random_, lines = random.Random(f"{seed} {batch}"), []
    for i in range(40):
        serial = 1000 * batch + 10 * i
        table, key = random_.choice(TABLES), str(random_.randrange(25))
        row: dict[str, str | None] = {
            "id": key,
            "word": random_.choice((None, f"w{serial}", "x" * 300, "ü%'")),
        }
        kind = random_.choice(("INSERT", "UPDATE", "UPDATE", "DELETE"))
        given = {"old": [{"id": str(random_.randrange(25))}]} if kind == "UPDATE" and i % 7 == 0 else {}
        late = 900 if batch > 2 and i % 11 == 0 else 0
        lines.append(change(kind, table, serial - late, row, **given))
        if i % 13 == 0:
            lines.append(lines[-1])
    if batch == 3:
        lines.append(statement("bins", 3990, "ALTER TABLE bins ADD COLUMN more INT"))
    return "".join(lines)
