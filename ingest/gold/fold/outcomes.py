"""What the fold hands to whatever applies it: one outcome for each key that a batch's changes concern, and nothing else.

Files (`ingest.gold.fold.arrow_files`) and Delta's MERGE (`ingest.gold.apply.apply_merge`) take the same outcomes and give the same
rows. An outcome is a row of an Arrow table:

| column | type | meaning |
|---|---|---|
| a column of the mirror, by its name in Delta | the column's own | its value; of the key always, of a deleted row NULL or anything |
| `%gone` | boolean | True if there is no row of the key now |
| `%has ` and a column's name | boolean | True if the outcome sets the column, else the mirror's own value stays; without these columns every outcome sets all |
| `%unfit` | string | JSON of the cells that are no values of their columns' types, which are NULL (`ingest.gold.fold.unfit`) |

No key is there twice, and none is NULL. An outcome that does not build on the mirror's row (one after a truncate, an
insert, or a history folded again) sets every column.

In a table without a key an outcome is a row with ``%copies`` instead of ``%gone``. No row is there twice unless rows are
appended, and none that the new changes do not concern (`ingest.gold.fold.keyless_arrow`).

In a table of old states (`ingest.gold.fold.arrow_states`) a row of the outcomes is a state of a key. For each key there is one more,
with ``%gone``: it stands for all states that the table has of it.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from ingest.gold.fold.arrow_work import Cleared
from ingest.gold.fold.unfit import Reject

GONE = "%gone"
COPIES = "%copies"
"""Of a table without a key: how often a row exists now, or, if rows are appended, how often it is added."""


def sets(column: str) -> str:
    """The name of the flag that says whether an outcome sets a column."""
    return f"%has {column}"


class MirrorOutcomes(NamedTuple):
    """The outcomes of a mirror's changes.

    Attributes:
        table: one row for each key, in no order.
        cleared: the tables of the mirror that were emptied, by their shards, of which that of a mirror with one table is
            empty: of their rows only those with an outcome stay.
        rejected: what does not fit: changes without a usable key, which no outcome shows, and cells.
        doubted: the keys whose outcomes are right only if the mirror has no row of them (`ingest.departures.Crossings`).
    """

    table: pa.Table
    cleared: Cleared
    rejected: list[Reject]
    doubted: pa.Table | None = None

    @property
    def is_partial(self) -> bool:
        """True if some outcomes may leave columns as they are in the mirror."""
        return any(name.startswith(sets("")) for name in self.table.schema.names)
