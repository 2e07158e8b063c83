"""The verb plan: what a run would read, create, add, hold or refuse, and why; nothing is written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ingest.cli import output
from ingest.cli.output import Output
from ingest.cli.spark import PipelineFiles, session_for
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
    from ingest.cli import dry_run
    from ingest.config import load

    pipelines = [load(file) for file in files]
    reasons = [dry_run.why_spark(pipeline) for pipeline in pipelines]
    asking = [pipeline for pipeline, why in zip(pipelines, reasons, strict=True) if why]
    for why in dict.fromkeys(filter(None, reasons)):
        output.note(f"{why} Spark is started, which takes a while.")
    with session_for(asking) if asking else contextlib.nullcontext() as spark:
        found = [
            dry_run.foresee(pipeline, spark if pipeline in asking else None, sample) for pipeline in pipelines
        ]
    output.answer(output_as, found, lambda: _show(found, sample))
    if any(one["problems"] for one in found):
        raise typer.Exit(1)


def _show(plans: list[dict[str, Any]], sample: int) -> None:
    for found in plans:
        output.line(_headline(found))
        rows = [row for source in found["sources"] for row in _reads(source, Path(found["file"]))]
        if rows:
            output.table(("source", "reads", "from", "to", "size"), rows)
        if found["tables"]:
            columns = ("table", "action", "changes", "key", "columns", "why")
            output.table(columns, [_table(one) for one in found["tables"]])
        if any(one["from_a_sample"] for one in found["tables"]):
            output.line(
                f"Tables, columns and counts marked ~ are from a sample of at most {sample} messages of each "
                "source: the rest may show more."
            )
        for source in found["sources"]:
            for text in source["warnings"]:
                output.warning(f"source {source['source']}: {text}")
        for text in found["warnings"]:
            output.warning(text)
        for text in found["problems"]:
            output.error(text)


def _headline(found: dict[str, Any]) -> str:
    name, lake = found["pipeline"], found["lake"]
    where = f"the lake {lake}" if found["lake_exists"] else f"the lake {lake}, which does not exist yet"
    if found["next_batch"] is None:
        said = f"{name}: nothing new to read for {where}."
    else:
        said = f"{name}: a run would land batch {found['next_batch']} in {where}."
    if waiting := found["undecoded_batches"]:
        said += f" {len(waiting)} landed batches wait to be decoded."
    if stages := found["stages"]:
        places = {SPARK: "Spark", DRIVER: "the driver"}
        done = "; ".join(f"{stage}: {places[where]}" for stage, where in stages.items())
        said += f"\nWhere it would be done (engine: {found['engine']}): {done}."
    return said


def _reads(source: dict[str, Any], file: Path) -> Iterator[tuple[object, ...]]:
    from ingest.config.model import shown_from

    name, reads = source["source"], source["reads"]
    if source["kind"] == "kafka":
        for one in reads:
            place = f"{one['topic']}/{one['partition']}"
            yield name, place, one["start"], one["end"], f"{one['messages']:,} offsets"
        return
    for one in reads[:_SHOWN]:
        end = "its end" if one["end"] is None else one["end"]
        yield name, _plain(shown_from(file, one["file"])), one["start"], end, _size(one["bytes"])
    if rest := reads[_SHOWN:]:
        yield name, f"and {len(rest)} more files", "", "", _size(sum(one["bytes"] for one in rest))


def _table(one: dict[str, Any]) -> tuple[object, ...]:
    mark = "~" if one["from_a_sample"] else ""
    key = ", ".join(one["keys"]) or "-"
    action = _ACTIONS.get(one["action"], one["action"])
    return one["table"], action, f"{mark}{one['changes']}", key, _columns(one), one["why"] or _way(one)


def _way(one: dict[str, Any]) -> str:
    """How what becomes of a mirror is applied, and why new statements need all its changes."""
    why = one["why_folded_again"]
    return _applied(one) + (f"; all its changes are folded again, because {why}" if why else "")


def _applied(one: dict[str, Any]) -> str:
    if one["why_merge"]:
        return f"by MERGE: {one['why_merge']}"
    if not one["keys"] or one["action"] not in ("create", "change", "fold"):
        return ""
    size, most = _size(one["bytes"]), _size(one["rewrite_budget"])
    if one["file_by_file"]:
        return f"by Arrow, which writes its files of {size} again one after the other"
    if one["deletion_vectors"]:
        return f"by Arrow, with deletion vectors: its files of {size} are more than the {most} that may be rewritten"
    return f"by Arrow, which may rewrite its files of {size} (at most {most})" if one["bytes"] else "by Arrow"


def _columns(one: dict[str, Any]) -> str:
    """The columns of a new mirror; of an old one what becomes of them."""
    if one["action"] == "create":
        return ", ".join(f"{each['name']} {each['type']}" for each in one["columns"])
    parts = [f"+ {each['name']} {each['type']}" for each in one["added"]]
    parts += [f"{each['name']} {each['was']} -> {each['type']}" for each in one["retyped"]]
    parts += [f"- {name}" for name in one["dropped"]]
    parts += [f"{name} is left out" for name in one["left_out"]]
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
