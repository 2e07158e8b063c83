"""What the documents say can be typed, read and found."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlglot
import typer
from ruamel.yaml import YAML
from typer.testing import CliRunner

from docs import commands, pipeline_file, problems, tables, vendors
from ingest import formats
from ingest.cli.app import VERBS, app
from ingest.config import TableRule, load
from ingest.inspect.problem_kinds import OF_CHECKS, OF_THE_LAKE, OF_THRESHOLDS
from ingest.tables.schemas import ALL
from tests.lakes import ROOT, example
from tests.problem_tests import named_tests

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
_COMMAND = re.compile(r"(?:^\$ |`)(ingest [^`\n]+)", re.MULTILINE)
_CODE = re.compile(r"`((?:ingest|tests|docs|jobs|benchmarks)/[\w/]+(?:\.py)?)(?::(\w+))?`")
_YAML = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
runner = CliRunner()


def commands_of(page: Path) -> list[list[str]]:
    """The command lines that a page shows, as words; lines with an ellipsis are not meant to be typed."""
    found = _COMMAND.findall(page.read_text("utf-8"))
    return [shlex.split(text, comments=True) for text in found if "..." not in text]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_commands_name_verbs_and_options_that_exist(page):
    """A command that fails as printed is the first thing that a newcomer meets."""
    group: Any = typer.main.get_command(app)
    for words in commands_of(page):
        assert words[1] in VERBS, words
        verb = group.get_command(typer.Context(group), words[1])
        known = options(verb)
        given = {word.partition("=")[0] for word in words[2:] if word.startswith("--")}
        assert given <= known, words


def options(command) -> set[str]:
    """Every long option of a command and of the commands below it."""
    found = {
        name for one in command.params for name in (*one.opts, *one.secondary_opts) if name.startswith("--")
    }
    for below in getattr(command, "commands", {}).values():
        found |= options(below)
    return found


def test_every_verb_is_in_some_document():
    """A verb that no page shows would be known only to its author."""
    documented = {words[1] for page in PAGES for words in commands_of(page)}
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    assert {verb for verb in VERBS if verb not in documented and f"`{verb}`" not in text} == set()


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page):
    """A broken link shows that the page is not maintained."""
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        if not link.startswith("http"):
            assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_code_that_a_page_names_exists(page):
    """An engineer who looks for a function that was renamed trusts no other line of the page."""
    for file, name in _CODE.findall(page.read_text("utf-8")):
        path = ROOT / file
        if "acme" in file:  # the example of a format that does not exist yet
            continue
        assert path.exists(), file
        if name:
            defined = {getattr(one, "name", "") for one in ast.parse(path.read_text("utf-8")).body}
            defined |= set(re.findall(r"(?m)^([A-Z_]+)(?:: [^=]+)? = ", path.read_text("utf-8")))
            assert name in defined, f"{file}:{name}"


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_make_targets_exist(page):
    """`make` answers an unknown target with an error."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"(?:`|\$ )make ([a-z0-9-]+)", page.read_text("utf-8")):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def pipelines() -> list[tuple[str, str]]:
    """Every YAML block of every page; one that begins with a source is put into a whole file."""
    found = []
    for name, page in zip(IDS, PAGES, strict=True):
        for i, block in enumerate(_YAML.findall(page.read_text("utf-8"))):
            head = "" if "pipeline:" in block else "pipeline: shop\nlake: ./lake\nsources:\n"
            if re.match(r"\w+:", block) and head:  # a part next to the sources
                head += "  - {name: s, path: ./x, format: dts-canal}\n"
            found.append((f"{name}-{i}", head + block))
    return found


@pytest.mark.parametrize("text", [text for _, text in pipelines()], ids=[name for name, _ in pipelines()])
def test_pipeline_files_in_documents_are_valid(tmp_path, monkeypatch, text):
    """The first pipeline file of most people is copied from a page."""
    secret = tmp_path / "jaas"
    secret.write_text("https://hooks.example.com/secret", "utf-8")
    monkeypatch.setenv("SMTP_PASSWORD", "secret")
    file = tmp_path / "shop.yaml"
    (tmp_path / "master").write_text("0123456789abcdef" * 4, "utf-8")
    text = text.replace("/run/secrets/bronze", str(tmp_path / "master"))
    file.write_text(re.sub(r"/run/secrets/\w+", str(secret), text), "utf-8")
    assert load(file).sources


# --- the way of a newcomer ----------------------------------------------------------------------


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A folder as the page's reader has it: messages of the shop in landing/."""
    sample = example("dts-canal", tmp_path).parent.parent / "samples" / "dts-canal"
    folder = tmp_path / "mine"
    (folder / "landing").mkdir(parents=True)
    for part in sample.glob("shop-*.jsonl"):
        part.rename(folder / "landing" / part.name)
    monkeypatch.chdir(folder)
    return folder


def typed() -> list[list[str]]:
    """The commands of docs/getting-started.md that are on lines of their own, in order."""
    text = (ROOT / "docs" / "getting-started.md").read_text("utf-8")
    return [shlex.split(line) for line in re.findall(r"^\$ ingest (.+?)(?: > .+)?$", text, re.MULTILINE)]


def test_getting_started_runs_up_to_the_run(shop):
    """A user who types the page line by line must get what it says."""
    codes = {}
    for words in typed():
        if words[0] not in ("run", "status", "sql", "tables"):  # these want Spark
            codes[words[0]] = runner.invoke(app, words).exit_code
            if words[0] == "init":
                assert "dts-canal" == load(shop / "shop.yaml").sources[0].format
                (shop / "shop.yaml").write_text(_YAML.findall(page("getting-started"))[0], "utf-8")
    assert {"detect": 0, "decode": 0, "init": 0, "validate": 0, "plan": 0} == codes
    assert not (shop / "lake").exists()


@pytest.mark.slow
def test_getting_started_runs_to_its_end(shop):
    """The query at the end is what the reader came for."""
    (shop / "shop.yaml").write_text(_YAML.findall(page("getting-started"))[0], "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for words in typed():
        if words[0] in ("run", "status", "sql", "tables"):
            done = subprocess.run(
                [sys.executable, "-m", "ingest", *words],
                capture_output=True, text=True, env=environment, check=False,
            )  # fmt: skip
            wanted = int(words[0] == "status")  # two of the sample's messages are broken
            assert wanted == done.returncode, (words, done.stderr)
            if words[0] == "sql":
                assert "paid" in done.stdout


def page(name: str) -> str:
    """The text of one page."""
    return (ROOT / "docs" / f"{name}.md").read_text("utf-8")


# --- what scripts write -------------------------------------------------------------------------


def test_the_reference_of_tables_is_the_one_of_the_code():
    """People would query columns that are not there: run `python -m docs.tables`."""
    assert tables.page() == page("tables")


def test_the_reference_names_every_column_once():
    """A column without a COMMENT, or one that the script's pattern does not see, would be missing silently."""
    for schema in ALL:
        tree = sqlglot.parse_one(f"CREATE TABLE t ({schema.ddl})".replace("''", ""), read="spark")
        expected = [one.name for one in tree.this.expressions]
        assert expected == [name for name, _, _ in tables.columns(schema)]


@pytest.mark.parametrize("name", vendors.FAMILIES)
def test_vendor_pages_hold_what_the_formats_say(name):
    """A page would promise what the parser no longer does: run `python -m docs.vendors`."""
    text = page(f"vendors/{name}")
    assert vendors.written(text, name) == text


def test_every_format_is_on_one_vendor_page():
    """A format without a page has no reader."""
    listed = [name for family in vendors.FAMILIES for name in vendors.members(family)]
    assert sorted(formats.names()) == sorted(listed)
    assert {f"{name}.md" for name in vendors.FAMILIES} == {one.name for one in vendors.PAGES.iterdir()}


@pytest.mark.parametrize("name", vendors.FAMILIES)
def test_options_on_vendor_pages_have_a_meaning_there(name):
    """An option of another dialect would silently do nothing."""
    for block in _YAML.findall(page(f"vendors/{name}")):
        for source in YAML(typ="safe").load(block)["sources"]:
            assert source["format"] in vendors.members(name)
            assert set(source.get("options", {})) <= set(formats.load(source["format"]).ABOUT.options)


def test_the_reference_of_commands_is_their_own_help():
    """An option would be looked for in vain: run `python -m docs.commands`."""
    assert commands.page() == page("commands")


def test_the_catalogue_of_problems_is_the_one_of_the_code():
    """A kind of problem would be missing, or its severity another: run `python -m docs.problems`."""
    assert problems.page() == page("problems")


@pytest.mark.parametrize("kind", [*OF_THE_LAKE, *OF_CHECKS, *OF_THRESHOLDS])
def test_every_kind_of_problem_is_brought_about_by_a_test(kind):
    """A command that no test types is one that nobody has seen run."""
    assert [*named_tests(kind)]


def test_the_reference_of_the_pipeline_file_is_the_one_of_the_code():
    """A key would be missing, or a default wrong: run `python -m docs.pipeline_file`."""
    assert pipeline_file.page() == page("pipeline-file")


def test_the_readme_says_which_columns_a_mirror_keeps():
    """Stale columns after a week would be a surprise to whoever reads of the source's columns alone."""
    row = next(
        line for line in (ROOT / "README.md").read_text("utf-8").splitlines() if "`lake/mirrors/" in line
    )
    assert "by default it also keeps columns that the source has dropped or renamed" in row
    assert "`on_schema_change: evolve` drops them" in row
    drop, rename = "ALTER TABLE t DROP COLUMN v", "ALTER TABLE t RENAME COLUMN v TO w"
    assert "lenient" == TableRule("*").on_schema_change
    assert pipeline_file._verdict(drop, "lenient").startswith("keeps column v")
    assert pipeline_file._verdict(rename, "lenient").endswith("and keeps v")
    assert "drops column v" == pipeline_file._verdict(drop, "evolve")
    assert "adds column w with the values of v" == pipeline_file._verdict(rename, "evolve")


def test_the_reference_explains_every_key_of_the_pipeline_file():
    """A key without a meaning or an example is learnt by trial."""
    for section in pipeline_file.SECTIONS:
        assert list(section.model.model_fields.keys() - section.keys.keys()) == []
        assert [] == [name for name, one in section.model.model_fields.items() if not one.description]


@pytest.mark.parametrize(
    ("section", "name"),
    [(one.title, name) for one in pipeline_file.SECTIONS for name in one.keys],
)
def test_examples_of_the_reference_are_valid(tmp_path, monkeypatch, section, name):
    """An example that `validate` refuses teaches nothing."""
    for variable in ("LINEAGE_KEY", "READER", "SMTP", "UNITY_TOKEN"):
        monkeypatch.setenv(variable, "secret")
    monkeypatch.setenv("MASK_SECRET", "0123456789abcdef")
    monkeypatch.setenv("BRONZE_KEY", "0123456789abcdef" * 4)
    for variable in ("SLACK_HOOK", "ALERT_HOOK"):
        monkeypatch.setenv(variable, "https://hooks.example.com/secret")
    (tmp_path / "orders-suite.json").write_text(
        '{"name": "s", "expectations": [{"type": "expect_column_to_exist", "kwargs": {"column": "id"}}]}'
    )
    found = next(one for one in pipeline_file.SECTIONS if one.title == section)
    example_of = f"{name}: {found.keys[name].example}"
    (tmp_path / "x.yaml").write_text(_document(section, name, example_of), "utf-8")
    load(tmp_path / "x.yaml")


def _document(section: str, name: str, text: str) -> str:
    """A whole pipeline file around one key's example."""
    lines = {
        "pipeline": "pipeline: p",
        "lake": "lake: ./l",
        "sources": "sources: [{name: s, path: a, format: canal}]",
    }
    given = {text.partition(":")[0]: text}
    file = {"name": "name: s", "path": "path: a.jsonl", "format": "format: canal"}
    topics = {
        "name": "name: s",
        "bootstrap_servers": "bootstrap_servers: b:1",
        "topics": "topics: [t]",
        "format": "format: canal",
    }
    if name == "topic_pattern":
        del topics["topics"]
    match section:
        case "The file":
            lines |= given
        case "A source of files":
            lines["sources"] = f"sources: [{{{', '.join((file | given).values())}}}]"
        case "A source of Kafka topics":
            lines["sources"] = f"sources: [{{{', '.join((topics | given).values())}}}]"
        case "The database of a source":
            whole = {"url": "url: 'mysql://h:1'", "user": "user: u"} | given
            lines["sources"] = (
                f"sources: [{{{', '.join(file.values())}, database: {{{', '.join(whole.values())}}}}}]"
            )
        case "Options of a source":
            lines["sources"] = f"sources: [{{{', '.join(file.values())}, options: {{{text}}}}}]"
        case "Tables":
            also = ", shard_column: source" if name == "into" else ""
            lines["tables"] = f"tables: [{{{text}{also}}}]"
        case "Bronze":
            lines["bronze"] = f"bronze: {{{text}}}"
        case "Sealed messages":
            also = "" if name in ("master_key", "command") else ", command: [c]"
            lines["bronze"] = f"bronze: {{seal: {{{text}{also}}}}}"
        case "Checks":
            lines["quality"] = f"quality: [{{{', '.join(({'table': 'table: a.b'} | given).values())}}}]"
        case "Expectations":
            whole = {"type": "type: expect_column_values_to_be_unique"} | given | {"column": "column: id"}
            lines["quality"] = f"quality: [{{table: a.b, expect: [{{{', '.join(whole.values())}}}]}}]"
        case "Alerts":
            mail = {"email": "email: [a@b]", "smtp": "smtp: smtp://h", "sender": "sender: c@d"}
            whole = (mail if name in mail else {"webhook": "webhook: 'https://h/x'"}) | given
            lines["alerts"] = f"alerts: [{{{', '.join(whole.values())}}}]"
        case "Lineage":
            whole = given if name in ("url", "file") else {"url": "url: 'http://m:1'"} | given
            lines["openlineage"] = f"openlineage: {{{', '.join(whole.values())}}}"
        case "A catalog":
            kind = {"region": "kind: glue"}.get(name, "kind: unity")
            place = {} if name == "region" else {"uri": "uri: 'http://h:1'", "catalog": "catalog: c"}
            whole = {"kind": kind} | place | given
            lines["catalog"] = f"catalog: {{{', '.join(whole.values())}}}"
    return "\n".join(lines.values()) + "\n"
