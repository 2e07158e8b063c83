"""JSON-C of Huawei Cloud DRS ("Kafka Message Format", section JSON-C).

As JSON, with two differences: a DELETE's row is in ``data``, and TIMESTAMP is text
``yyyy-mm-dd hh:mm:ss``, whose zone is not documented (option ``timezone``). For Oracle sources
``database`` holds the schema.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ingest.decoding.flat_messages import MarkRule, evidence
from ingest.formats import SharedEvidence, drs_json
from ingest.formats.canal import changes, changes_as_columns

ABOUT = replace(
    drs_json.ABOUT,
    title="JSON-C, Huawei Cloud DRS",
    document="Huawei DRS, Kafka Message Format, JSON-C",
    options={
        "timezone": "the zone of TIMESTAMP texts (default UTC)",
        **drs_json.ABOUT.options,
    },
)

DIALECT = replace(drs_json.DIALECT, deleted_in_old=False)


parse = partial(changes, dialect=DIALECT)
parse_many = partial(changes_as_columns, dialect=DIALECT)


def recognise(sample: bytes) -> str | None:
    """Evidence of JSON-C: an id, bytes as lists of numbers, and TIMESTAMP as text or the row of a DELETE in ``data``."""
    lists = "Canal message with an id, bytes as lists of numbers"
    return evidence(
        sample,
        MarkRule("id int_lists moments", f"{lists} and TIMESTAMP as text"),
        MarkRule("id int_lists deleted_in_data", f"{lists} and the row of a DELETE in data"),
        MarkRule("id int_lists", drs_json.PERHAPS_LISTS, lacks="deleted_in_old"),
        MarkRule(
            "id moments old_is_full base_names",
            SharedEvidence("perhaps Canal message with an id, whole rows in old and TIMESTAMP as text"),
        ),
        lacks="upper_case column_type epochs",
    )
