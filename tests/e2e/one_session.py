"""Several verbs in one process and one Spark session, whose start would else cost more than they do.

``python -m tests.e2e.one_session FILE VERBS`` takes the verbs as JSON, a list of lists of words, and prints as JSON
what each has printed on stdout; the first that fails ends it. The word ``mirrors`` is not a verb: it gives the shop's.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

from pyspark.sql import SparkSession

from ingest.cli.app import app
from ingest.cli.spark import session_for
from ingest.config import load
from ingest.tables.lake import Lake
from tests.lakes import shop


def output(spark: SparkSession, file: str, words: list[str]) -> str:
    """What one verb prints."""
    if words == ["mirrors"]:
        return json.dumps(shop(Lake(spark, load(file))))
    printed = io.BytesIO()
    text = io.TextIOWrapper(printed, "utf-8")
    with contextlib.redirect_stdout(text):
        try:
            app(words, standalone_mode=False)
        finally:
            text.flush()
    return printed.getvalue().decode()


def main(file: str, verbs: str) -> None:
    """Open the session as `run` would, and lend it to each verb."""
    with session_for([load(file)]) as spark:
        spark.conf.set("spark.ingest.profile", "")  # a verb stops only a session that was started for it
        found = [output(spark, file, words) for words in json.loads(verbs)]
        spark.stop()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
