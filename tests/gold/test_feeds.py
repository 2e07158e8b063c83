"""Change feeds: replayed from the beginning, they give the mirror after every batch, whatever came in it."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ingest.config import load
from ingest.errors import HeldError, command
from ingest.gold import feeds as filling
from ingest.gold.apply import apply_merge
from ingest.gold.fold.arrow_files import Written, make
from ingest.inspect import status
from ingest.inspect.query import query
from ingest.ledgers import feeds, mirrors
from ingest.run import Warm, run
from ingest.tables.lake import Lake
from tests.unstarted import unstarted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ingest.gold.fold.arrow_work import MirrorWork

RULE = "tables: [{match: t.item, keys: [ID], columns: {ID: int64, image: int32}, changes_of: true}]\n"


@dataclass(slots=True)
class Shop:
    """One table of one source, and its feed."""

    folder: Path
    rules: str = RULE
    number: int = 0
    warm: Warm = field(default_factory=Warm)
    spark: SparkSession = field(default_factory=unstarted)

    @property
    def lake(self) -> Lake:
        """What was written, by the rules as they are now."""
        file = self.folder / "x.yaml"
        file.write_text(
            "pipeline: x\nlake: ./lake\nengine: auto\nsources: [{name: s, path: './in-*.jsonl', format: ogg, settle: 0s}]\n"
            + self.rules
        )
        return Lake(self.spark, load(file))

    def run(self, *messages: Mapping[str, Any]) -> list[tuple[str, str]]:
        """The mirrors' states after a batch of messages."""
        if messages:
            self.number += 1
            text = "\n".join(map(json.dumps, messages)) + "\n"
            (self.folder / f"in-{self.number}.jsonl").write_text(text)
        found = run(self.spark, self.lake.pipeline, ("bronze", "silver", "gold"), self.warm)
        return [(one.state, one.message) for one in found.mirrors]

    def rows(self) -> list[dict[str, Any]]:
        """The feed, in its order."""
        (mirror,) = mirrors.known(self.lake).values()
        return self.lake.ask_mirror(feeds.path_of(mirror), "SELECT * FROM {mirror} ORDER BY number")

    def check(self) -> None:
        """The replay is the mirror."""
        (mirror,) = mirrors.known(self.lake).values()
        there = self.lake.ask_mirror(mirror.path, "SELECT * FROM {mirror}")
        texts = [{name: text_of(one) for name, one in row.items()} for row in there]
        replayed = feeds.replayed(self.rows())
        assert ordered(texts) == ordered(
            [{name: row.get(name) for name in there[0]} if there else row for row in replayed]
        )


def text_of(value: object) -> str | None:
    """A cell as messages have it."""
    if isinstance(value, dt.datetime):
        return value.isoformat() + "Z"
    return value if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def ordered(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as a multiset that compares."""
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def said(pos: int, kind: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> dict[str, Any]:
    """One message; its transaction has three of them."""
    return {
        "table": "t.item", "op_type": kind, "op_ts": f"2024-06-10 06:{pos // 60:02}:{pos % 60:02}.000000",
        "current_ts": "2024-06-10T14:14:55.267000", "pos": f"{pos:020}", "primary_keys": ["ID"], "before": old,
        "after": new, "xid": f"0.{pos // 3}.1",
    }  # fmt: skip


def history(random: Random, length: int) -> list[dict[str, Any]]:
    """What a database could have done: partial updates, changed keys, deletes and truncates among it."""
    rows: dict[str, dict[str, Any]] = {}
    messages = []
    for pos in range(1, length + 1):
        key, text = str(random.randint(1, 9)), random.choice(["a", "ü\"'", None, ""])
        if random.random() < 0.02:
            rows = {}
            messages.append(said(pos, "T", None, None))
        elif key not in rows:
            rows[key] = {"ID": key, "key": text, "image": str(pos)}
            messages.append(said(pos, "I", None, rows[key]))
        elif random.random() < 0.3:
            messages.append(said(pos, "D", {"ID": key}, None))
            del rows[key]
        else:
            new = key if random.random() < 0.7 else str(random.randint(1, 9))
            new = key if new in rows else new
            sent = {
                "ID": new,
                **random.choice([{"key": text}, {"image": str(pos)}, {"key": text, "image": str(pos)}]),
            }
            if new != key:  # with the whole row, so that Arrow alone can fold it in order
                sent = {**rows[key], **sent}
            messages.append(said(pos, "U", {"ID": key}, sent))
            rows[new] = {**rows.pop(key), **sent}
    return messages


def delivered(random: Random, length: int, count: int) -> list[list[dict[str, Any]]]:
    """A history in batches, some messages late or repeated."""
    messages = history(random, length)
    batches: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    for at, one in enumerate(messages):
        own = at * count // length
        batches[min(count - 1, own + (random.random() < 0.15) * random.randint(1, 3))].append(one)
        if random.random() < 0.1:
            batches[random.randint(own, count - 1)].append(one)
    return batches


@pytest.mark.spark
@pytest.mark.slow
def test_a_replay_gives_the_mirror_that_spark_has_folded(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletion vectors leave rows in files that both versions have."""
    monkeypatch.setattr(apply_merge, "REWRITTEN", 0)
    shop = Shop(tmp_path, RULE + "apply: merge\n", spark=spark)
    rows = [{"ID": str(key), "key": "a", "image": "1"} for key in range(20)]
    shop.run(*(said(pos, "I", None, row) for pos, row in enumerate(rows, 1)))
    late = said(30, "U", {"ID": "4"}, {"ID": "4", "image": "4"})
    for batch in (
        [said(31, "D", {"ID": "7"}, None), said(32, "U", {"ID": "3"}, {"ID": "30", "image": "2"})],
        [late, said(33, "U", {"ID": "4"}, {"ID": "4", "key": None}), said(34, "I", None, rows[7]), late],
    ):
        assert [("done", "")] == shop.run(*batch)
        shop.check()
    (mirror,) = mirrors.known(shop.lake).values()
    assert any(one.deleted for one in shop.lake.snapshot(mirror.path).files)
    feed = [(row["operation"], json.loads(row["after"] or row["before"])["ID"]) for row in shop.rows()[20:]]
    assert [("delete", "3"), ("delete", "7"), ("insert", "30"), ("update", "4"), ("insert", "7")] == feed


@pytest.mark.one_of(4)
@pytest.mark.parametrize("seed", range(4))
def test_a_replay_gives_the_mirror_after_each_batch(seed: int, tmp_path: Path) -> None:
    """Late and repeated messages included: a consumer who misses a change, or gets one too many, is silently wrong."""
    batches = delivered(Random(seed), 120, 8)
    rules = RULE if seed % 2 else RULE.replace("changes_of", "deletes: soft, changes_of")
    shop, seen = Shop(tmp_path, rules), 0
    for batch in batches:
        states = shop.run(*batch)
        assert [("done", "")] == states
        shop.check()
        rows = shop.rows()
        assert len(rows) == len({row["number"] for row in rows})
        new, seen = rows[seen:], len(rows)
        assert {shop.number} == {row["batch"] for row in new}
        assert all(row["before"] != row["after"] for row in new)
        images = [json.loads(row["after"] or row["before"]) for row in new]
        assert len(images) == len({one["ID"] for one in images}), "one row for a key and a batch"
        assert all((row["before"] is None) == (row["operation"] == "insert") for row in new)
        assert all((row["after"] is None) == (row["operation"] == "delete") for row in new)
    count = len(shop.rows())
    shop.run(*batches[0], *batches[5])
    assert count == len(shop.rows()), "repeated messages change nothing"


def test_a_row_says_what_made_it(tmp_path: Path) -> None:
    """The last change of the key in the batch; nothing is known of a row that a truncate removes."""
    shop = Shop(tmp_path)
    one, two = {"ID": "1", "key": "a", "image": "1"}, {"ID": "2", "key": "b", "image": "2"}
    shop.run(
        said(1, "I", None, one), said(2, "I", None, two), said(4, "U", {"ID": "1"}, {"ID": "1", "image": "7"})
    )
    shop.run(said(6, "D", {"ID": "2"}, None), said(9, "T", None, None))
    changes = [(row["operation"], row["batch"], row["transaction"], row["event_time"]) for row in shop.rows()]
    assert ["insert", "insert", "delete", "delete"] == [row[0] for row in changes]
    assert [1, 1, 2, 2] == [row[1] for row in changes]
    assert [4, 2, None, 6] == [row[3] and row[3].second for row in changes]
    assert ["0.1.1", "0.0.1", None, "0.2.1"] == [row[2] for row in changes]
    found = query(shop.lake, "SELECT operation, after FROM t.item__changes ORDER BY number LIMIT 1")[1]
    assert [["insert", '{"ID":"1","key":"a","image":"7"}']] == [list(row) for row in found]


def test_a_feed_that_was_interrupted_gets_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the mirror's commit and the feed's a run may be killed; the next one must add the rest, and no row twice."""
    shop = Shop(tmp_path)
    shop.run(said(1, "I", None, {"ID": "1", "key": "a", "image": "1"}))
    with monkeypatch.context() as patch:
        patch.setattr(filling, "follow", lambda *_: (_ for _ in ()).throw(OSError("no space")))
        assert [("failed", "The change feed: OSError: no space")] == shop.run(said(2, "D", {"ID": "1"}, None))
    shop.warm = Warm()
    shop.run()
    assert [("insert", 1), ("delete", 2)] == [(row["operation"], row["batch"]) for row in shop.rows()]
    (mirror,) = mirrors.known(shop.lake).values()
    assert 0 == filling.follow(shop.lake, mirror)
    for file in (tmp_path / "lake" / mirror.path).glob("*.parquet"):
        file.unlink()
    monkeypatch.setattr(filling, "version", lambda *_: 0)
    with pytest.raises(HeldError, match="can no longer be read"):
        filling.follow(shop.lake, mirror)
    monkeypatch.setattr(filling, "version", lambda *_: 99)
    with pytest.raises(HeldError, match="was created again"):
        filling.follow(shop.lake, mirror)


def test_a_feed_begins_and_goes_on_with_its_rule(tmp_path: Path) -> None:
    """The line alone begins it, with all rows; what happened while it was away comes as the net difference."""
    shop = Shop(tmp_path, RULE.replace(", changes_of: true", ""))
    rows = [{"ID": str(number), "key": "a", "image": "1"} for number in range(3)]
    shop.run(*(said(number + 1, "I", None, row) for number, row in enumerate(rows)))
    shop.rules, shop.warm = RULE, Warm()
    shop.run()
    assert ["insert"] * 3 == [row["operation"] for row in shop.rows()]
    shop.rules, shop.warm = RULE.replace(", changes_of: true", ""), Warm()
    shop.run(said(5, "U", {"ID": "1"}, {"ID": "1", "key": "b"}), said(6, "D", {"ID": "2"}, None))
    shop.run(said(7, "U", {"ID": "1"}, {"ID": "1", "key": "c"}))
    shop.rules, shop.warm = RULE, Warm()
    shop.run(said(8, "U", {"ID": "0"}, {"ID": "0", "M": "new"}))
    assert Counter(insert=3, update=2, delete=1) == Counter(row["operation"] for row in shop.rows())
    assert {"ID": "0", "key": "a", "image": "1", "M": "new"} in [
        json.loads(row["after"] or "{}") for row in shop.rows()
    ]
    shop.check()


def _damaged_log(shop: Shop, tmp_path: Path) -> tuple[Path, str]:
    """The newest commit of the feed's log, cut off, and its text from before."""
    (mirror,) = mirrors.known(shop.lake).values()
    commit = max((tmp_path / "lake" / feeds.path_of(mirror)).glob("_delta_log/*.json"))
    text = commit.read_text("utf-8")
    commit.write_text('{"broken', "utf-8")
    return commit, text


def test_a_feed_whose_log_is_restored_leaves_no_failed_mirror(tmp_path: Path) -> None:
    """Nothing comes for it then: its mirror stayed failed, with the advice to move a sound folder away."""
    shop = Shop(tmp_path)
    shop.run(said(1, "I", None, {"ID": "1", "key": "a", "image": "1"}))
    commit, text = _damaged_log(shop, tmp_path)
    shop.warm = Warm()
    assert ["failed"] == [state for state, _ in shop.run()]
    commit.write_text(text, "utf-8")
    for expected in ([("done", "")], []):
        shop.warm = Warm()
        assert expected == shop.run()
    assert ["ok"] == [entry["state"] for entry in status.tables(shop.lake)]
    shop.check()


def test_a_mirror_whose_log_is_damaged_fails_alone_with_its_feed(tmp_path: Path) -> None:
    """The look for its feed ended the run."""
    shop = Shop(tmp_path)
    shop.run(said(1, "I", None, {"ID": "1", "key": "a", "image": "1"}))
    (mirror,) = mirrors.known(shop.lake).values()
    max((tmp_path / "lake" / mirror.path).glob("_delta_log/*.json")).write_text('{"broken', "utf-8")
    shop.warm = Warm()
    [(state, message)] = shop.run(said(2, "I", None, {"ID": "2", "key": "b", "image": "2"}))
    assert ("failed", True) == (state, command("rebuild", tmp_path / "x.yaml", mirror.name) in message)


def test_a_feed_that_begins_leaves_a_mirror_failed_that_the_run_has_not_folded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for folded, and its batch was never folded again."""

    def made(work: MirrorWork, rows: Iterable[pa.RecordBatch] | None) -> Written:
        return Written(work.path, "the store is away") if work.path.endswith("item") else make(work, rows)

    def two(pos: int) -> list[dict[str, Any]]:
        rows = [{"ID": str(pos + number), "key": "a", "image": "1"} for number in range(2)]
        there, other = (said(pos + number, "I", None, row) for number, row in enumerate(rows))
        return [there, other | {"table": "t.other"}]

    shop = Shop(tmp_path, RULE.replace("t.item", "t.*").replace(", changes_of: true", ""))
    shop.run(*two(1))
    with monkeypatch.context() as patch:
        patch.setattr("ingest.gold.apply.arrow_runs.make", made)
        assert {"done", "failed"} == {state for state, _ in shop.run(*two(3))}
    shop.rules = RULE.replace("t.item", "t.*")
    run(shop.spark, shop.lake.pipeline, ("bronze", "silver", "gold"), Warm(), select="t.other")
    shop.warm = Warm()
    shop.run()
    assert 2 == shop.lake.count("mirrors/t/item")


def test_a_damaged_log_of_a_feed_stops_nothing_else_and_has_a_command(tmp_path: Path) -> None:
    """The run ended with 2 at it, and `ingest tables` too: no mirror was folded, and nothing said what to do."""
    shop = Shop(tmp_path)
    shop.run(said(1, "I", None, {"ID": "1", "key": "a", "image": "1"}))
    (mirror,) = mirrors.known(shop.lake).values()
    folder = tmp_path / "lake" / feeds.path_of(mirror)
    max(folder.glob("_delta_log/*.json")).write_text('{"broken')
    for messages in ([said(2, "I", None, {"ID": "2", "key": "b", "image": "2"})], []):
        shop.warm = Warm()
        [(state, message)] = shop.run(*messages)
        assert "failed" == state
        assert message.startswith("The change feed: the table's log is damaged")
        assert (
            f"move the folder {folder} away, and `{command('retry', tmp_path / 'x.yaml')}` begins" in message
        )
    assert 2 == shop.lake.count(mirror.path)
    assert ["damaged"] == [entry["state"] for entry in status.feeds_of(shop.lake)]
    folder.rename(tmp_path / "away")
    shop.warm = Warm()
    assert [("done", "")] == shop.run()
    assert ["insert"] * 2 == [row["operation"] for row in shop.rows()]
    shop.check()
