"""The figures that the README and docs/scaling.md quote are those of benchmarks/results.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import decode, figures
from benchmarks.contest import bench
from benchmarks.contest.variants import Done

RESULTS = """# Measured

## 200,000 messages into 3 tables of 1,000,000 rows

| contestant | rounds | cold s | CPU-s | warm s | CPU-s | peak GiB | warm wall / product's | CPU / product's | result |
|---|---|---|---|---|---|---|---|---|---|
| product | 3 | 14.6 | 20.4 | 4.9 | 8.0 | 1.70 | 1.00 | 1.00 | equal |
| recipe, tuned | 0 | | | | | | | | failed |
| recipe, defaults | 2 | 60.5 | 112.2 | 27.6 | 51.1 | 2.75 | 5.67 (5.5 to 6.0) | 6.38 (6.1 to 6.5) | equal |

## 1,000 messages into 3 tables of 1,000,000 rows

| contestant | cold s | CPU-s | warm s | CPU-s | 10 cells do not fit, s | CPU-s | peak GiB | result |
|---|---|---|---|---|---|---|---|---|
| product | 4.1 | 5.2 | | | | | 0.80 | equal |
| product --every | 4.3 | 5.8 | 0.46 | 0.67 | 0.50 | 0.70 | 0.82 | equal |
| product, engine auto --every | 4.3 | 5.8 | 0.36 | 0.57 | 0.40 | 0.60 | 0.82 | equal |

## Fiftyfold: one batch of 10,000,000 messages, 3 tables of 1,000,000 rows

| messages | s | CPU-s | messages a second | messages a CPU-second | peak GiB |
|---|---|---|---|---|---|
| 200,000 | 3.7 | 6.2 | 54,553 | 32,103 | 1.64 |
| 10,000,000 | 102.4 | 194.1 | 97,691 | 51,517 | 1.76 |

## One core against two, 3 tables of 1,000,000 rows

| given | messages | s | CPU-s | speed-up |
|---|---|---|---|---|
| one core | 200,000 | 5.0 | 4.9 |  |
| one core | 2,000,000 | 41.0 | 40.8 |  |
| two cores | 200,000 | 3.2 | 5.3 | 1.56 |
| two cores | 2,000,000 | 23.0 | 41.0 | 1.78 |
| one executor of one core | 200,000 | 6.1 | 7.4 |  |

## Many

Not done within 4 minutes.
"""


@pytest.mark.parametrize("page", figures.PAGES, ids=lambda page: page.name)
def test_a_page_quotes_the_results(page: object) -> None:
    """The README would promise what no run has measured. `python -m benchmarks.figures` writes it again."""
    [(path, block)] = [each for each in figures.PAGES.items() if each[0] == page]
    text = path.read_text("utf-8")
    assert text == figures.replaced(text, block(figures.RESULTS.read_text("utf-8")))


def test_figures_are_found_by_their_heads() -> None:
    """A column more in a table would put other figures into the README."""
    text = figures.in_readme(RESULTS)
    assert "| `ingest` (`engine: spark`) | 4.9 | 8.0 | 1.70 GiB |" in text
    assert "MERGE), with defaults | 27.6 | 51.1 | 2.75 GiB |" in text
    assert "tuned" not in text  # it failed
    assert "| 1,000 messages into the same three tables | 0.46 | 0.67 | 0.36 | 0.57 |" in text
    assert "| the same with ten cells that do not fit | 0.50 | 0.70 | 0.40 | 0.60 |" in text
    assert "| 10,000,000 messages into the same three tables | 102.4 | 194.1 |  |  |" in text
    assert "50 tables" not in text  # its section was not done
    assert "| 10,000,000 | 102.4 | 194.1 | 97,691 | 51,517 | 1.76 GiB |" in figures.in_scaling(RESULTS)


def test_more_cores_shorten_what_they_share() -> None:
    """Half of the time that two cores take would be promised of four, however much of it one of them does alone."""
    law = figures.Law.of(RESULTS)
    assert law is not None
    for cores, messages, taken in ((1, 200_000, 5.0), (2, 2_000_000, 23.0)):
        assert law.seconds(messages, cores) == pytest.approx(taken, abs=0.05)
    assert (law.fixed, 1e6 * law.alone, 1e6 * law.shared) == pytest.approx((1.0, 2.0, 18.0))
    page = figures.in_scaling(RESULTS)
    assert (
        "takes 1.0 s, and for each million messages 2.0 s that more cores do not shorten, and 18.0 s divided"
        in page
    )
    assert "(111 s of 10,000,000 on two, where 102.4 were measured)" in page
    assert "| 4 | 2.3 | 14.0 | 66.0 | 151,515 |" in page
    assert "more cores" not in figures.in_scaling(RESULTS.replace("two cores", "three cores"))


def test_a_page_without_its_marks_is_refused() -> None:
    """The figures would be lost, or replace the rest of the page."""
    marked = f"a\n{figures.BEGIN}\nold\n{figures.END}\nb\n"
    assert f"a\n{figures.BEGIN}\n\nnew\n\n{figures.END}\nb\n" == figures.replaced(marked, "new")
    for text in ("no marks", figures.BEGIN, marked * 2):
        with pytest.raises(ValueError, match="lacks"):
            figures.replaced(text, "new")


@pytest.mark.parametrize(
    ("options", "writes"),
    [
        (["--full"], True),
        (["--write"], False),
        (["--full", "--rows", "9"], False),
        (["--full", "--variants", "million", "--write"], False),
        (["--full", "--only", "recipe", "--write"], False),
    ],
)
def test_pages_quote_only_a_whole_run_of_the_full_form(
    options: list[str], writes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures of small tables would be called those of a million rows, or a page would lose what one section has not."""
    written: list[bool] = []
    monkeypatch.setattr("sys.argv", ["bench", *options])
    monkeypatch.setattr(bench, "variants", lambda *_: [Done("million", "## A million", 0, 1.0)])
    monkeypatch.setattr(figures, "RESULTS", tmp_path / "results.md")
    monkeypatch.setattr(figures, "write", lambda: written.append(True))
    assert 0 == bench.main()
    assert writes == bool(written)


def test_a_run_without_spark_keeps_the_figures_of_spark(monkeypatch, capsys):
    """It wrote a table whose columns of Spark were empty over the one that had them."""
    monkeypatch.setattr(decode, "measure", lambda *_, **__: [])
    monkeypatch.setattr("sys.argv", ["decode", "--no-spark", "--write"])
    monkeypatch.setattr(decode, "RESULTS", Path("no such folder", "results-decode.md"))
    with pytest.raises(SystemExit):
        decode.main()
    assert "would lose its figures" in capsys.readouterr().err
