"""The benchmark's large variants, as far as they need no Spark: what is left out, how inputs are cut, who is right."""

from __future__ import annotations

import shutil
from argparse import Namespace
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from benchmarks.contest import headline, readers, scale
from benchmarks.contest.bench import sized
from benchmarks.contest.degrade import Files, files_of
from benchmarks.contest.form import FULL, QUICK
from benchmarks.contest.ground import ALL, FILE, Ground
from benchmarks.contest.measure import Step, contest
from benchmarks.contest.steps import Script
from benchmarks.contest.variants import LARGE, NAMES, sections, variants
from benchmarks.contest.workload import DATABASE, Workload

ROWS = pa.table({"id": [3, 1, 2], "note": ["c", "a", "b"]})


def test_every_name_has_a_variant(tmp_path: Path) -> None:
    """`--full` would end after its first hour."""
    assert set(NAMES) == sections(tmp_path, QUICK, ALL).keys()


def test_a_place_is_the_same_in_a_uri(tmp_path: Path) -> None:
    """AUTO CDC, whose name has a quote, would look for its tables where nobody put them."""
    ground = Ground(tmp_path / "ground", Workload(7, 1, 4))
    places = {ground.place(each.name, number) for each in ALL for number in (0, 1)}
    assert 2 * len(ALL) == len(places)
    assert all(place.as_uri().endswith(f"/{place.name}") and "%" not in place.as_uri() for place in places)


def test_a_full_disk_leaves_the_large_variants_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A benchmark would fill the user's disk."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: Namespace(free=10**9))
    done = list(variants(tmp_path, tuple(LARGE), FULL, ALL))
    assert len(LARGE) == len(done)
    wanted = {
        name: f"Left out: 1 GB of the disk are free, {room} are wanted." for name, room in LARGE.items()
    }
    assert wanted == {each.name: each.text.splitlines()[-1] for each in done}
    assert not any(each.wrong for each in done)
    assert len(LARGE) == capsys.readouterr().err.count("is left out")
    assert [] == list(tmp_path.iterdir())


def test_a_form_of_other_sizes_is_not_called_the_full_one() -> None:
    """Small figures would overwrite the page of the full ones."""
    assert FULL == sized(FULL, {"rows": None, "messages": None})
    form = sized(FULL, {"rows": 2_000, "messages": None})
    assert (2_000, FULL.messages) == (form.rows, form.messages)
    assert "full form, 2,000 rows" == form.name


def test_a_stream_is_cut_into_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of ten million messages would be one file, or lack its end."""
    monkeypatch.setattr("benchmarks.contest.ground.FILE", 40)
    ground = Ground(tmp_path / "ground", Workload(7, 2, 60))
    lines = [f"{n}\n" for n in range(100)]
    files = ground.stream("many", iter(lines))
    assert [40, 40, 20] == [len(Path(file).read_text().splitlines()) for file in files]
    assert "".join(lines) == "".join(Path(file).read_text() for file in sorted(files))
    ground.forget(files)
    assert not any(Path(file).exists() for file in files)
    assert FILE == 100_000


def test_what_is_done_between_steps_is_done_while_the_contestant_waits(tmp_path: Path) -> None:
    """A look at a lake would meet a batch that is being written."""
    deltalake.write_deltalake(tmp_path / "mirror", pa.table({"id": [1]}))
    passes = [{"folder": str(tmp_path), "steps": [("one", []), ("two", [])]}]
    seen: list[str] = []
    steps = contest("delta_rs", Script(passes, {}, {}), tmp_path / "log", lambda step: seen.append(step.name))
    assert ["one", "two"] == seen == [step.name for step in steps]


def test_rows_are_compared_cell_by_cell(tmp_path: Path) -> None:
    """A thousand mirrors would be called equal whatever they hold."""
    deltalake.write_deltalake(tmp_path / "mirror", ROWS)
    wrong = pa.table({"id": [1, 2, 4], "note": ["a", "x", "d"]})
    assert 0 == readers.wrong_rows(tmp_path / "mirror", ROWS.sort_by("id"))
    assert 3 == readers.wrong_rows(tmp_path / "mirror", wrong)  # 2 differs, 3 is too many, 4 is missing


def test_a_missing_mirror_is_no_right_one(tmp_path: Path) -> None:
    """A table that was never made would pass for an empty one."""
    workload = Workload(7, 2, 4)
    list(workload.births(4))
    expected = workload.expected()
    place = tmp_path / "lake" / "mirrors" / DATABASE
    deltalake.write_deltalake(place / "orders0", expected["orders0"])
    assert "orders1" in scale.compared(tmp_path, expected).error
    deltalake.write_deltalake(place / "orders1", expected["orders1"])
    assert "equal" == str(scale.compared(tmp_path, expected))


def test_dead_files_are_distinguished_from_living_ones(tmp_path: Path) -> None:
    """The growth of a table would be hidden, or made up."""
    for mode in ("append", "overwrite", "append"):
        deltalake.write_deltalake(tmp_path / "mirror", ROWS, mode=mode)
    assert Files(2, 0, 3) == files_of([tmp_path / "mirror"])


def test_a_doubled_row_is_wrong(tmp_path: Path) -> None:
    """Compared by key alone, a mirror that holds a row twice would pass."""
    right = pa.table({"id": [1, 2], "n": ["a", "b"]})
    for name, rows, wrong in (("right", [0, 1], 0), ("doubled", [0, 1, 1], 1), ("missing", [0], 1)):
        path = tmp_path / name
        deltalake.write_deltalake(path, right.take(rows))
        assert wrong == readers.wrong_rows(path, right), name


def test_a_round_is_compared_with_the_same_round_of_the_product() -> None:
    """After a round that failed, each later one would be divided by the product's round before it."""
    steps = {seconds: [Step("cold", 1, 1, 1), Step("warm", seconds, 1, 1)] for seconds in (2.0, 4.0, 8.0)}
    ours = {0: steps[2.0], 1: steps[4.0]}
    assert "2.00" == headline.ratios({1: steps[8.0]}, ours, lambda step: step.wall)
    assert "" == headline.ratios({2: steps[8.0]}, ours, lambda step: step.wall)
