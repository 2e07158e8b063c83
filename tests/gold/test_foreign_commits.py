"""Foreign commits in a mirror, seen in its log without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from ingest.change import TableId
from ingest.config import Pipeline, TableRule
from ingest.errors import HeldError, command
from ingest.gold.plan.foreign_commits import refuse_past
from ingest.gold.preview import foresee, lake_state
from ingest.inspect.status import status
from ingest.ledgers.books import Line
from ingest.ledgers.mirrors import Column, Mirror
from ingest.run import Warm
from ingest.tables.lake import Lake
from tests.shops import Shops

MIRROR = Mirror(TableId("yard", None, "depot"), "mirrors/yard/depot", ("id",), (Column("id", "id", "int64"),))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with one mirror, whose first commit is that of batch 1."""
    found = Lake(None, Pipeline("yard", tmp_path / "yard.yaml", str(tmp_path), ()))  # type: ignore[arg-type]
    write(found, json.dumps({"batch": 1, "run": "r"}))
    return found


def write(lake: Lake, metadata: str = "") -> None:
    """Append a row to the mirror."""
    about = deltalake.CommitProperties({"userMetadata": metadata} if metadata else None)
    row = pa.table({"id": pa.array([1], pa.int64())})
    deltalake.write_deltalake(lake.path(MIRROR.path), row, mode="append", commit_properties=about)


def refuse(lake: Lake, applied: int = 1) -> None:
    """Look at all of the mirror's commits."""
    refuse_past(lake, MIRROR, lake.snapshot(MIRROR.path).version, applied, 1)


def test_our_commits_and_joined_files_are_no_reason_to_hold(lake: Lake) -> None:
    """`maintain` and other engines' OPTIMIZE move rows without changing them."""
    write(lake, json.dumps({"run": "r"}))
    deltalake.DeltaTable(lake.path(MIRROR.path)).optimize.compact()
    assert 2 == lake.snapshot(MIRROR.path).version
    refuse(lake)


def test_rows_by_another_writer_hold_the_mirror(lake: Lake) -> None:
    """They are not in silver: the next batches would be folded onto rows that no message holds."""
    write(lake)
    with pytest.raises(HeldError, match=r"version 1 of yard\.depot was not written by this pipeline"):
        refuse(lake)


def test_a_held_mirror_starts_no_spark(tmp_path: Path) -> None:
    """Every further run would start Spark to say the same."""
    shops = Shops(tmp_path, TableRule(match="shop_1.item")).say(1, "INSERT", 1, "a").say(1, "INSERT", 2, "b")
    assert "done" == shops.run()[0]
    [path] = shops.warm.decided or ()
    deltalake.DeltaTable(shops.lake.path(path)).delete("id = 1")
    for key in (3, 4):
        more = Line(
            9, "s", None, None, "shop_1", None, "item", changes=1, messages=1, columns={"id": "int64"}
        )
        [foreseen] = foresee(shops.pipeline, lake_state(shops.lake), [more], ())
        state, message = shops.say(1, "INSERT", key, "c").run()
        assert ("held", True) == (state, "was not written by this pipeline (DELETE)" in message)
        assert ("hold", message) == (foreseen.action, foreseen.why), "a plan says what the run does"
        said = status(shops.lake)
        again = command("rebuild", shops.pipeline.file, "shop_1.item")
        assert (again, again) == (said["next"], said["causes"][0]["command"])
        shops.warm = Warm()


def test_a_log_that_no_longer_goes_back_to_our_last_batch_is_not_held(lake: Lake) -> None:
    """What was cleaned up cannot be judged, and a mirror that `maintain` looks after must go on."""
    deltalake.DeltaTable(lake.path(MIRROR.path)).optimize.compact()
    write(lake, json.dumps({"run": "r"}))
    deltalake.DeltaTable(lake.path(MIRROR.path)).create_checkpoint()
    for number in range(lake.snapshot(MIRROR.path).version):
        Path(lake.path(MIRROR.path), "_delta_log", f"{number:020d}.json").unlink()
    refuse(lake)


def test_a_batch_that_the_lake_does_not_have_holds_the_mirror(lake: Lake) -> None:
    """A lake restored without its mirrors would count its batches as folded."""
    with pytest.raises(HeldError, match="restored from a backup without its mirrors"):
        refuse(lake, applied=2)
