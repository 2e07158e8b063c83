"""How a mirror's files are read, and what its rows may take in memory before Arrow leaves them to Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.change import TableId
from ingest.gold.fold import arrow_files
from ingest.gold.fold.arrow_work import ColumnWork, LaneWork, MirrorWork, Rows
from ingest.tables import row_files

COLUMNS = (ColumnWork("id", "id", "int64"), ColumnWork("text", "text", "string"))
LANE = LaneWork("s", TableId("shop", None, "orders"), 1, 1, images=True)


def mirror_of(folder: Path, files: int) -> MirrorWork:
    """A mirror of some 200 KiB of texts in each file, which takes a few KiB on disk."""
    names = []
    for n in range(files):
        rows = pa.table({"id": pa.array(range(200 * n, 200 * n + 200)), "text": ["x" * 1000] * 200})
        pq.write_table(rows, folder / f"{n}.parquet", compression="zstd")
        names.append((f"{n}.parquet", None))
    return MirrorWork("orders", str(folder), ("id",), COLUMNS, (LANE,), tuple(names), 4096)


def update(after: str = '{"id": "1", "text": "y"}') -> dict[str, object]:
    """One change."""
    return {
        "source": "s", "database": "shop", "schema": None, "table": "orders", "batch": 1, "order_key": "a",
        "op": "update", "partial": False, "before": None, "after": after, "topic": "t", "partition": 0, "offset": 0, "row": 0, "transaction": None,
    }  # fmt: skip


def changes(*rows: dict[str, object]) -> Rows:
    """Changes as they are read."""
    return dict(arrow_files.apart(pa.Table.from_pylist(list(rows)), [LANE]))


@pytest.mark.parametrize("files", [1, 4])
def test_rows_that_would_fill_the_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    """The size of a file says little: a worker that is killed for its memory takes the whole batch with it."""
    work = mirror_of(tmp_path, files)
    monkeypatch.setattr(arrow_files, "ROWS_AT_MOST", files * 190 << 10)  # of several files each alone fits
    assert "its rows take more than 0 MiB of memory" == arrow_files.make(work, changes(update())).refused
    assert files == len([*tmp_path.iterdir()])  # nothing is left over
    monkeypatch.setattr(arrow_files, "ROWS_AT_MOST", files * 220 << 10)
    made = arrow_files.make(work, changes(update()))
    assert ("", 1, files * 200) == (made.refused, made.counts["updated"], made.counts["written"])
    assert "y" == pq.read_table(tmp_path / made.file).sort_by("id")["text"][1].as_py()


@pytest.mark.parametrize("files", [1, 4])
def test_the_memory_for_a_few_rows_of_large_files_is_that_of_these_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    """With deletion vectors the files stay, so their other rows need not be held."""
    work = mirror_of(tmp_path, files)
    work = replace(work, marked=frozenset(name for name, _ in work.files))
    monkeypatch.setattr(arrow_files, "READ", 50)
    monkeypatch.setattr(arrow_files, "ROWS_AT_MOST", 900)
    assert "its rows take more than 0 MiB of memory" == arrow_files.make(work, changes(update())).refused
    monkeypatch.setattr(arrow_files, "ROWS_AT_MOST", 1100)
    made = arrow_files.make(work, changes(update()))
    assert ("", 1, 1) == (made.refused, made.counts["updated"], made.counts["written"])
    assert ["0.parquet"] == list(made.vectors)
    assert {"id": [1], "text": ["y"]} == pq.read_table(tmp_path / made.file).to_pydict()


def test_what_a_file_would_take_is_known_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row group is decoded whole: a refusal after that comes too late."""
    work = mirror_of(tmp_path, 1)
    monkeypatch.setattr(arrow_files, "SAMPLED", 0)
    monkeypatch.setattr(arrow_files, "SAMPLE", 10)
    assert 190 << 10 < arrow_files._likely_bytes(str(tmp_path / "0.parquet")) < 220 << 10
    monkeypatch.setattr(arrow_files, "ROWS_AT_MOST", 190 << 10)
    monkeypatch.setattr("pyarrow.dataset.dataset", lambda *_given, **_named: pytest.fail("it was read"))
    assert "its rows take more than 0 MiB of memory" == arrow_files.make(work, changes(update())).refused


@pytest.mark.parametrize("form", ["text, id", "id int32", "text dictionary", "no text", "one more"])
def test_small_files_are_read_whatever_form_their_columns_have(tmp_path: Path, form: str) -> None:
    """Writers choose the order of columns and their physical types, and a file may be older than a column."""
    work = mirror_of(tmp_path, 1)
    expected = arrow_files.there(work)
    rows = expected.append_column("extra", pa.nulls(200, pa.int8()))
    chosen = {
        "text, id": rows.select(["text", "id"]),
        "id int32": rows.select(["id", "text"]).set_column(0, "id", rows["id"].cast(pa.int32())),
        "text dictionary": rows.select(["id", "text"]).set_column(
            1, "text", rows["text"].dictionary_encode()
        ),
        "no text": rows.select(["id"]),
        "one more": rows,
    }[form]
    pq.write_table(chosen, tmp_path / "0.parquet")
    if form == "no text":
        expected = expected.set_column(1, "text", pa.nulls(200, pa.string()))
    assert expected == arrow_files.there(work)


def test_large_values_are_written_without_further_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dictionary, and a row group that is not written yet, hold each of a few texts of 20 MiB once more."""
    monkeypatch.setattr(row_files, "GROUP_BYTES", 5 << 20)
    texts = [f"{n}" * (2 << 20) for n in range(8)]
    rows = changes(*(update(f'{{"id":"{n}","text":"{text}"}}') for n, text in enumerate(texts)))
    made = arrow_files.make(MirrorWork("orders", str(tmp_path), ("id",), COLUMNS, (LANE,)), rows)
    assert ("", 8) == (made.refused, made.counts["written"])
    with pq.ParquetFile(tmp_path / made.file) as file:
        assert texts == file.read()["text"].to_pylist()
        assert 4 == file.num_row_groups
        columns = [file.metadata.row_group(0).column(at) for at in (0, 1)]
    assert [True, False] == [one.has_dictionary_page for one in columns]


def test_changes_of_one_table_in_their_order_are_not_copied() -> None:
    """They may be large, and are held until all mirrors are folded."""
    page = pa.Table.from_pylist([update(), update() | {"order_key": "b"}])
    [(_, whole)] = arrow_files.apart(page, [LANE])
    assert page["after"].chunk(0).buffers()[2].address == whole["after"].chunk(0).buffers()[2].address
    [(_, turned)] = arrow_files.apart(page.take([1, 0]), [LANE])
    assert page.equals(turned)
