"""Write decoded changes as data files where they are decoded, and report the written files as rows.

Runs in Python workers, and for few messages in the driver; imports no Spark.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from ingest.lake.datafiles import Files, Layout
from ingest.silver.lift import Batches, Lifting, lift

REPORT = "file BINARY"


def decoding(how: Lifting, layout: Layout) -> Callable[[Batches], Batches]:
    """The function that decodes messages into new files, and reports these."""

    def run(batches: Batches) -> Batches:
        with Files(layout) as files:
            for page in lift(how)(batches):
                files.add(page)
            done = [one.to_json() for one in files.finish()]
        yield pa.RecordBatch.from_arrays([pa.array(done, pa.binary())], ["file"])

    return run
