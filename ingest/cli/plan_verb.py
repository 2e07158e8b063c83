"""The verb plan: what a run would read, create, add, hold or refuse, and why; nothing is written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.cli.spark import PipelineFiles, each_usable, refuse, session_for
from ingest.errors import IngestError, counted
from ingest.spark.jobs import DRIVER, SPARK

app = typer.Typer()
_SHOWN = 20  # files of one source; --output json lists all
_ACTIONS = {"change": "change columns", "hold": "HOLD"}  # as they are printed; the others are as they are


@app.command(rich_help_panel="Run")
def plan(
    files: PipelineFiles,
    sample: Annotated[
        int, typer.Option(min=0, help="So many messages of each source are decoded to name tables.")
    ] = 200,
    output_as: Output = "table",
) -> None:
    """Say what a run would read, create, add, hold or refuse, and why; it writes nothing."""
    from ingest.config import load
    from ingest.operate import dry_run

    faults: dict[Path, IngestError] = {}
    pipelines = each_usable(files, load, faults)
    reasons = [dry_run.why_spark(pipeline) for pipeline in pipelines]
    asking = [pipeline for pipeline, why in zip(pipelines, reasons, strict=True) if why]
    for why in dict.fromkeys(filter(None, reasons)):
        output.note(f"{why} Spark is started, which takes a while.")
    with session_for(asking) if asking else contextlib.nullcontext() as spark:
        foreseen = [
            dry_run.foresee(pipeline, spark if pipeline in asking else None, sample) for pipeline in pipelines
        ]
    output.answer(output_as, foreseen, lambda: _show(foreseen, sample))
    refuse(faults)
    output.exit_with(any(foreseen_run["problems"] for foreseen_run in foreseen))


def _show(plans: list[dict[str, Any]], sample: int) -> None:
    for foreseen in plans:
        output.line(_headline(foreseen))
        rows = [row for source in foreseen["sources"] for row in _reads(source, Path(foreseen["file"]))]
        if rows:
            output.table(("source", "reads", "from", "to", "size"), rows)
        if foreseen["tables"]:
            columns = ("table", "action", "changes", "key", "columns", "why")
            output.table(columns, [_table(table) for table in foreseen["tables"]])
        if any(table["from_a_sample"] for table in foreseen["tables"]):
            output.line(
                f"Tables, columns and counts marked ~ are from a sample of at most {sample} messages of each "
                "source: the rest may show more."
            )
        if (catalog := foreseen["catalog"]) and catalog["names"]:
            named = ", ".join(f"{mirror} as {name}" for mirror, name in catalog["names"].items())
            output.line(f"Registered in the catalog ({catalog['catalog']}): {named}.")
        for source in foreseen["sources"]:
            for text in source["warnings"]:
                output.warning(f"source {source['source']}: {text}")
        for text in foreseen["warnings"]:
            output.warning(text)
        for text in foreseen["problems"]:
            output.error(text)


def _headline(foreseen: dict[str, Any]) -> str:
    name, lake = foreseen["pipeline"], foreseen["lake"]
    where = f"the lake {lake}" if foreseen["lake_exists"] else f"the lake {lake}, which does not exist yet"
    if foreseen["next_batch"] is None:
        said = f"{name}: nothing new to read for {where}."
    else:
        said = f"{name}: a run would land batch {foreseen['next_batch']} in {where}."
    if waiting := foreseen["undecoded_batches"]:
        said += f" {counted(len(waiting), 'landed batch waits', 'landed batches wait')} to be decoded."
    if stages := foreseen["stages"]:
        places = {SPARK: "Spark", DRIVER: "the driver"}
        done = "; ".join(f"{stage}: {places[where]}" for stage, where in stages.items())
        said += f"\nWhere it would be done (engine: {foreseen['engine']}): {done}."
    return said


def _reads(source: dict[str, Any], file: Path) -> Iterator[tuple[object, ...]]:
    from ingest.config.model import shown_from

    name, reads = source["source"], source["reads"]
    if source["kind"] == "kafka":
        for read in reads:
            place = f"{read['topic']}/{read['partition']}"
            yield name, place, read["start"], read["end"], counted(read["messages"], "offset")
        return
    for read in reads[:_SHOWN]:
        end = "its end" if read["end"] is None else read["end"]
        yield name, _plain(shown_from(file, read["file"])), read["start"], end, _size(read["bytes"])
    if rest := reads[_SHOWN:]:
        yield (
            name,
            f"and {counted(len(rest), 'more file')}",
            "",
            "",
            _size(sum(read["bytes"] for read in rest)),
        )


def _table(table: dict[str, Any]) -> tuple[object, ...]:
    mark = "~" if table["from_a_sample"] else ""
    key = ", ".join(table["keys"]) or "-"
    action = _ACTIONS.get(table["action"], table["action"])
    return (
        table["table"],
        action,
        f"{mark}{table['changes']}",
        key,
        _columns(table),
        table["why"] or _way(table),
    )


def _way(table: dict[str, Any]) -> str:
    """How what becomes of a mirror is applied, and why new statements need all its changes."""
    why = table["why_folded_again"]
    return _applied(table) + (f"; all its changes are folded again, because {why}" if why else "")


def _applied(table: dict[str, Any]) -> str:
    if table["why_merge"]:
        return f"by MERGE: {table['why_merge']}"
    if not table["keys"] or table["action"] not in ("create", "change", "fold"):
        return ""
    size, most = _size(table["bytes"]), _size(table["rewrite_budget"])
    if table["file_by_file"]:
        return f"by Arrow, which writes its files of {size} again one after the other"
    if table["deletion_vectors"]:
        return f"by Arrow, with deletion vectors: its files of {size} are more than the {most} that may be rewritten"
    return (
        f"by Arrow, which may rewrite its files of {size} (at most {most})" if table["bytes"] else "by Arrow"
    )


def _columns(table: dict[str, Any]) -> str:
    """The columns of a new mirror; of an old one what becomes of them."""
    if table["action"] == "create":
        return ", ".join(f"{each['name']} {each['type']}" for each in table["columns"])
    parts = [f"+ {each['name']} {each['type']}" for each in table["added"]]
    parts += [f"{each['name']} {each['was']} -> {each['type']}" for each in table["retyped"]]
    parts += [f"- {name}" for name in table["dropped"]]
    parts += [f"{name} is left out" for name in table["left_out"]]
    return ", ".join(parts)


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _plain(path: str) -> str:
    """A path for display: relative where that is shorter, odd bytes escaped."""
    from ingest.bronze.files import shown

    with contextlib.suppress(ValueError):
        path = min(path, str(Path(path).relative_to(Path.cwd())), key=len)
    return shown(path)
