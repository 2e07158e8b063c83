"""A whole lake of masked columns: what was planted is found in bronze and nowhere else, whatever is asked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ingest.change import TableId
from ingest.cli.app import app
from ingest.config import Pipeline, load
from ingest.config.masks import Masks
from ingest.errors import HeldError
from ingest.inspect.problems import of_state
from ingest.ledgers import decoded_with
from ingest.tables.tables import LakeReader
from tests.lakes import touch
from tests.serve.conftest import client_of
from tests.written_lake import WrittenLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CUSTOMERS, ORDERS = TableId("shop", None, "customers"), TableId("shop", None, "orders")
SECRETS = {"one": "first secret of the shop 0123456789", "two": "second secret of the shop 0123456789"}
TYPES = {
    "id": "bigint",
    "email": "varchar",
    "phone": "bigint",
    "name": "varchar",
    "iban": "varchar",
    "born": "date",
}
RULES = """\
mask_secret: ${file:secret}
tables:
  - match: shop.customers
    mask: {id: hmac, email: hmac, phone: last4, name: null, iban: tokenize, spare: hmac}
  - match: shop.orders
    mask: {customer: hmac, mail: hmac}
"""
PLANTED = [
    "jo@example.org", "jo.new@example.org", "ann@example.org", "default@example.org", "4930123456", "4930654321",
    "70010001", "70010002", "70010003", "Jo Planted", "Ann Planted", "DE89370400440532013000", "badly@broken.org",
    "not a birthday",
]  # fmt: skip


def message(serial: int, kind: str, table: str, row: dict[str, Any] | None, **given: Any) -> str:
    """One message of the shop."""
    types = TYPES if table == "customers" else {"id": "bigint", "customer": "bigint", "mail": "varchar"}
    return json.dumps(
        {
            "data": [row], "database": "shop", "es": 1_700_000_000_000 + serial, "id": serial, "isDdl": False,
            "mysqlType": types, "old": None, "pkNames": ["id"], "sql": "", "table": table,
            "ts": 1_700_000_000_000 + serial, "type": kind,
        } | given
    ) + "\n"  # fmt: skip


def customer(
    number: str, email: str, phone: str, name: str, born: str | None = "1990-01-02"
) -> dict[str, Any]:
    """A row of customers."""
    return {
        "id": number,
        "email": email,
        "phone": phone,
        "name": name,
        "iban": "DE89370400440532013000",
        "born": born,
    }


JO, ANN = customer("70010001", "jo@example.org", "4930123456", "Jo Planted"), customer("70010002", "ann@example.org", "4930654321", "Ann Planted")  # fmt: skip
FIRST = [
    message(1, "INSERT", "customers", JO),
    message(2, "INSERT", "customers", ANN),
    message(3, "INSERT", "orders", {"id": "1", "customer": "70010001", "mail": "jo@example.org"}),
    message(4, "UPDATE", "customers", {**JO, "email": "jo.new@example.org"}, old=[{"email": "jo@example.org"}]),
    '{"data":[{"email":"badly@broken.org"\n',
    message(5, "ALTER", "customers", None, data=None, isDdl=True, pkNames=None, sql="ALTER TABLE customers ADD spare VARCHAR(90) DEFAULT 'default@example.org'"),
    message(6, "INSERT", "orders", {"id": "2", "customer": "70010002", "mail": "ann@example.org"}),
]  # fmt: skip
SECOND = [
    message(7, "UPDATE", "customers", {**ANN, "id": "70010003", "spare": "default@example.org"}, old=[{"id": "70010002"}]),
    message(8, "UPDATE", "orders", {"id": "2", "customer": "70010003", "mail": "ann@example.org"}, old=[{"customer": "70010002"}]),
    message(9, "INSERT", "customers", customer("70010004", "not a birthday", "70010001", "not a birthday", "x")),
    message(10, "DELETE", "customers", customer("70010004", "not a birthday", "70010001", "not a birthday", "x")),
]  # fmt: skip


class Shop(WrittenLake):
    """A shop with masked customers, whose lake is written without Spark."""

    def __init__(self, folder: Path, more: str = RULES) -> None:
        (folder / "secret").write_text(SECRETS["one"], "utf-8")
        super().__init__(folder, "shop", more)
        self.decide("decoding", "bins", decoded_with.settings_of(self.pipeline, self.pipeline.sources[0]))

    def masked(self, table: TableId, row: dict[str, Any]) -> dict[str, Any]:
        """A row as its mirror must hold it."""
        masks = Masks(self.pipeline).of(table)
        assert masks is not None
        found = masks.image(row, {"id": "int64", "customer": "int64"})
        assert found is not None
        return found

    def mixed(self, *changes: tuple[str, str]) -> str:
        """Why a run with another text in the pipeline file is refused; "" if it is not."""
        text = self.file.read_text("utf-8")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        other = self.file.with_name("other.yaml")
        other.write_text(text, "utf-8")
        pipeline = load(other)
        return decoded_with.mixed_masks(LakeReader(pipeline), self.batch) or decoded_with.lost_masks(
            LakeReader(pipeline)
        )


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A lake of two batches."""
    made = Shop(tmp_path_factory.mktemp("masked"))
    made.take(FIRST)
    made.take(SECOND)
    (made.file.parent / "shop-1.jsonl").write_text("".join(FIRST + SECOND), "utf-8")  # for plan and infer
    return made


def texts(lake: Path) -> Iterator[tuple[str, str]]:
    """All bytes of a lake's files except bronze's."""
    for path in sorted(lake.rglob("*")):
        if path.is_file() and path.relative_to(lake).parts[0] != "bronze":
            held = path.read_bytes().decode("utf-8", "replace")
            if path.suffix == ".parquet":
                held += json.dumps(pq.ParquetFile(path).read().to_pylist(), default=str, ensure_ascii=False)
            yield str(path.relative_to(lake)), held


def test_mirrors_join_by_their_masks(shop: Shop) -> None:
    """A changed key would be found under its old mask, or under none."""
    query = "SELECT o.id, c.name, c.phone, c.iban FROM shop.orders AS o JOIN shop.customers AS c ON o.customer = c.id ORDER BY o.id"
    answer = CliRunner().invoke(app, ["sql", str(shop.file), query, "-o", "json"])
    ann = shop.masked(CUSTOMERS, ANN)
    assert [("2", None, "***4321", ann["iban"])] == [
        tuple(None if row[name] is None else str(row[name]) for name in ("id", "name", "phone", "iban"))
        for row in json.loads(answer.output)
        if str(row["id"]) == "2"
    ]
    assert 2 == len(json.loads(answer.output))


def test_what_was_planted_is_in_no_file_but_bronze(shop: Shop) -> None:
    """Every reader of the mirrors could read the values."""
    held = dict(texts(shop.lake))
    assert {"changes", "rejects", "ddl", "mirrors", "decisions"} <= {name.split("/")[0] for name in held}
    assert [] == [
        (name, one) for name, text in held.items() for one in (*PLANTED, *SECRETS.values()) if one in text
    ]


def test_what_was_planted_is_in_no_answer(shop: Shop) -> None:
    """The read-only commands show rejects and single rows masked."""
    key, file, report = shop.masked(CUSTOMERS, JO)["id"], str(shop.file), shop.file.with_name("report.html")
    answers = {
        words: CliRunner().invoke(app, [*words])
        for words in [
            ("status", file), ("alerts", file), ("status", file, "-o", "prom"), ("report", file, "--out", str(report)), ("tables", file), ("plan", file), ("infer", file), ("validate", file), ("validate", "--show", file),
            ("explain", file, "shop.customers", key), ("explain", file, "shop.customers", key, "-o", "json"),
            ("rejects", file, "--all"), ("rejects", file, "-o", "json"), ("rejects", "show", file, "1"),
            ("rejects", "show", file, "1", "-o", "json"), ("ddl", file), ("ddl", file, "-o", "json"),
            ("sql", file, "SELECT * FROM changes"), ("sql", file, "SELECT * FROM rejects"),
            ("sql", file, "SELECT * FROM shop.customers"),
        ]
    }  # fmt: skip
    for words, answer in answers.items():
        assert answer.exit_code in (0, 1), (words, answer.output)
        assert [] == [one for one in (*PLANTED, *SECRETS.values()) if one in answer.output], words
    assert [] == [one for one in PLANTED if one in report.read_text("utf-8")]
    assert key in answers["explain", file, "shop.customers", key].output
    assert "not shown" in answers["rejects", "show", file, "1"].output
    by_value = CliRunner().invoke(app, ["explain", file, "shop.customers", "70010001"])
    assert answers["explain", file, "shop.customers", key].output == by_value.output


def test_what_was_planted_is_on_no_page(shop: Shop) -> None:
    """`ingest serve` shows a reject as it came, and a row from its raw messages on."""
    key, client = shop.masked(CUSTOMERS, JO)["id"], client_of(shop.file)
    pages = [
        "/", "/pipeline?pipeline=shop", "/table?pipeline=shop&table=shop.customers",
        f"/row?pipeline=shop&table=shop.customers&key={key}", "/rejects?pipeline=shop", "/reject?pipeline=shop&number=1",
        "/ddl?pipeline=shop", "/sql?pipeline=shop&q=SELECT+*+FROM+changes", "/api/status", "/metrics",
    ]  # fmt: skip
    for page in pages:
        answer = client.get(page)
        assert 200 == answer.code, page
        assert [] == [one for one in (*PLANTED, *SECRETS.values()) if one in answer.text], page
    assert "not shown" in client.get(pages[5]).text
    for query in (
        "SELECT+CAST(value+AS+VARCHAR)+FROM+bronze",
        "SELECT+1+WHERE+EXISTS+(SELECT+1+FROM+Bronze)",
    ):
        for page in (f"/sql?pipeline=shop&q={query}", f"/api/sql?pipeline=shop&q={query}"):
            answer = client.get(page)
            assert "so it is not shown here" in answer.text, page
            assert [] == [one for one in PLANTED if one in answer.text], page


# --- changed masks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ((), ""),
        (((": ${file:secret}", ": " + SECRETS["two"]),), "email of shop.customers is masked with hmac by another secret"),
        ((("phone: last4", "phone: tokenize"),), "phone of shop.customers was masked with last4 and is now masked with tokenize"),
        ((("phone: last4, ", ""),), "phone of shop.customers was masked with last4 and is now not masked"),
        ((("phone: last4", "born: last4, phone: last4"),), "born of shop.customers was not masked and is now masked with last4"),
        ((("phone: last4", "unseen: last4, phone: last4"),), ""),  # no value of it has another mask
        ((("  - match: shop.orders", "  - {match: shop.bills, mask: {iban: hmac}}\n  - match: shop.orders"),), ""),
    ],
)  # fmt: skip
def test_masks_that_changed_are_refused(shop: Shop, changes: tuple[tuple[str, str], ...], said: str) -> None:
    """One customer would become two: rows with the old mask next to rows with the new one."""
    found = shop.mixed(*changes)
    assert said == found[: len(said)]
    assert bool(said) == bool(found)
    assert bool(said) == ("rebuild" in found and "--layer silver" in found)
    causes = list(of_state(LakeReader(load(shop.file.with_name("other.yaml"))), [], {}, 0))
    assert [found] * bool(said) == [one.text for one in causes if one.severity == "error"]
    assert said == "" or not any("backfill" in one.text for one in causes)  # which would refuse it


def test_a_secret_that_is_not_there_is_not_another_one(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read-only commands work without the secret, and must not advise masking everything again."""
    monkeypatch.delenv("NO_SUCH_SECRET", raising=False)
    text = shop.file.read_text("utf-8").replace("${file:secret}", "${NO_SUCH_SECRET}")
    other = shop.file.with_name("without.yaml")
    other.write_text(text, "utf-8")
    reader = LakeReader(load(other, to_look=True))
    assert "" == decoded_with.mixed_masks(reader, shop.batch)
    assert [] == decoded_with.outdated(reader, shop.batch)


def test_masks_of_a_lake_from_before_them_are_refused(tmp_path: Path) -> None:
    """What an older version decoded is not masked, though nothing on record says so."""
    made = Shop(tmp_path, "")
    made.take(FIRST)
    assert "" == made.mixed()
    said = made.mixed(("sources:", RULES + "sources:"))
    assert said.startswith("email of shop.customers was not masked and is now masked with hmac")


def test_a_batch_decoded_in_part_is_finished_as_it_was_begun(shop: Shop) -> None:
    """A killed run may have written the changes and not the books: nothing says yet which columns they have."""
    (shop.file.parent / "third").write_text(SECRETS["two"], "utf-8")
    other = shop.file.with_name("third.yaml")
    other.write_text(shop.file.read_text("utf-8").replace("file:secret", "file:third"), "utf-8")
    assert decoded_with.mixed_masks(LakeReader(load(other)), 0, 1).startswith("Batch 1 is decoded in part")
    assert "" == decoded_with.mixed_masks(shop.reader, 0, 1)


@pytest.mark.parametrize(
    ("rule", "sql", "said"),
    [
        ("no_key: append, mask: {name: null}", "", "shop.calls: it has no key, and null gives different values one text: write `name: hmac`"),
        ("no_key: full_row, mask: {id: keep, 'p*': last4}", "", "shop.calls: it has no key, and last4 gives different values"),
        ("no_key: full_row, mask: {id: keep, 'p*': hmac}", "", ""),
        ("shard_column: shop, keys: [id], mask: {id: keep, '*': null}", "", ""),
        ("mask: {phone: tokenize}", "CREATE TABLE calls (phone BIGINT PRIMARY KEY, name TEXT)", "shop.calls: the column phone is part of the key, and tokenize"),
        ("mask: {phone: hmac}", "CREATE TABLE calls (phone BIGINT PRIMARY KEY, name TEXT)", ""),
    ],
)  # fmt: skip
def test_rows_that_a_mask_makes_equal_are_refused(tmp_path: Path, rule: str, sql: str, said: str) -> None:
    """Two callers would be one row, for a key is not always named by the messages themselves."""
    made = Shop(tmp_path, RULES + f"  - {{match: shop.calls, {rule}}}\n")
    created = (
        [message(1, "CREATE", "calls", None, data=None, isDdl=True, pkNames=None, sql=sql)] if sql else []
    )
    row = message(
        2, "INSERT", "calls", {"id": "1", "phone": "4930123456", "name": "Jo Planted"}, pkNames=None
    )
    (tmp_path / "shop-1.jsonl").write_text("".join([*created, row]), "utf-8")
    found = json.loads(CliRunner().invoke(app, ["plan", str(made.file), "-o", "json"]).stdout)
    [table] = [one for one in found[0]["tables"] if one["table"] == "shop.calls"]
    assert ("hold" if said else "create") == table["action"], table
    assert said == table["why"][: len(said)] if said else True


@pytest.mark.parametrize(
    ("sql", "more", "said"),
    [
        ("ALTER TABLE customers RENAME COLUMN email TO mail", (), "Batch 1 renames email of shop.customers, which is masked, to mail"),
        ("ALTER TABLE customers RENAME COLUMN email TO mail", (("email: hmac", "email: hmac, mail: hmac"),), ""),
        ("ALTER TABLE customers RENAME COLUMN email TO mail", (("email: hmac", "email: hmac, mail: keep"),), ""),
        ("ALTER TABLE customers RENAME COLUMN born TO birthday", (), ""),
        ("RENAME TABLE customers TO clients", (), "Batch 1 renames shop.customers, which is masked, to shop.clients"),
        ("RENAME TABLE customers TO _customers_old", (), ""),  # a helper table, which is left out
        ("RENAME TABLE customers TO _customers_old", (("tables:", "tables:\n  - match: shop._*"),), ""),  # or masked
    ],
)  # fmt: skip
def test_a_name_that_no_mask_fits_is_refused(tmp_path: Path, sql: str, more: Any, said: str) -> None:
    """A renamed column would silently be unmasked from then on."""
    made = Shop(tmp_path)
    made.take([message(1, "ALTER", "customers", None, data=None, isDdl=True, pkNames=None, sql=sql)])
    found = made.mixed(*more)
    assert said == found[: len(said)]
    assert bool(said) == bool(found)


# --- masks that come later, with Spark -------------------------------------------------------------


HEAD = """\
pipeline: shop
lake: ./lake
engine: auto
sources:
  - {name: shop, kind: files, path: ./shop-*.jsonl, format: dts-canal, settle: 1s}
"""


def landed(folder: Path, part: int, lines: list[str], rules: str) -> Pipeline:
    """The pipeline with these rules, and one more file of messages."""
    path = folder / f"shop-{part}.jsonl"
    path.write_text("".join(lines), "utf-8")
    touch(path)
    (folder / "secret").write_text(SECRETS["one"], "utf-8")
    (folder / "shop.yaml").write_text(HEAD + rules, "utf-8")
    return load(folder / "shop.yaml")


def expected(pipeline: Pipeline) -> dict[str, list[dict[str, Any]]]:
    """What both mirrors must hold after all messages."""
    masks, spare = Masks(pipeline), "default@example.org"
    rows = {
        "customers": [
            {**JO, "email": "jo.new@example.org", "spare": spare},
            {**ANN, "id": "70010003", "spare": spare},
        ],
        "orders": [
            {"id": "1", "customer": "70010001", "mail": "jo@example.org"},
            {"id": "2", "customer": "70010003", "mail": "ann@example.org"},
        ],
    }
    types = {"id": "int64", "customer": "int64"}
    found = {}
    for name, mine in rows.items():
        table = masks.of(TableId("shop", None, name))
        assert table is not None
        found[name] = [table.image(row, types) or {} for row in mine]
    return found


def texts_of(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, str | None]]:
    """Rows as text, in one order."""
    found = [{name: None if cell is None else str(cell) for name, cell in row.items()} for row in rows]
    return sorted(found, key=lambda row: str(sorted(row.items(), key=str)))


@pytest.mark.slow
@pytest.mark.spark
def test_a_lake_is_masked_again_from_its_bronze(spark: SparkSession, tmp_path: Path) -> None:
    """Unmasked rows would remain next to masked ones, under keys that nothing joins with."""
    from ingest import run as running
    from ingest.cli.repair_verbs import fold_again
    from ingest.silver.rebuild import rebuild
    from ingest.tables.lake import Lake

    running.run(spark, landed(tmp_path, 1, FIRST, ""))
    pipeline = landed(tmp_path, 2, SECOND, RULES)
    with pytest.raises(HeldError, match="was not masked and is now masked with"):
        running.run(spark, pipeline)
    lake = Lake(spark, pipeline)
    assert (2, 1) == (lake.progress("bronze", "bronze"), lake.decoded())  # the messages are kept
    assert not rebuild(lake, 2, dry_run=True).none
    with pytest.raises(HeldError):  # a dry run changes nothing
        running.run(spark, pipeline)
    rebuild(lake, 2, dry_run=False)
    assert {"rebuilt"} == {row["state"] for row in fold_again(lake, [], dry_run=False)}
    failures = running.run(spark, pipeline).failures
    assert [] == [one for one in failures if "reject" not in one]
    for name, wanted in expected(pipeline).items():
        rows = lake.read(f"mirrors/shop/{name}").collect()
        assert texts_of(wanted) == texts_of(row.asDict() for row in rows)
    kept = [str(row) for name in ("changes", "ddl", "rejects", "books") for row in lake.read(name).collect()]
    assert [] == [one for one in (*PLANTED, *SECRETS.values()) for text in kept if one in text]
