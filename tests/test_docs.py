"""What the documents say can be typed, read and found."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from ingest.cli.app import VERBS, app
from ingest.config import load

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
IDS = [page.name for page in PAGES]
_COMMAND = re.compile(r"(?:^\$ |`)(ingest [^`\n]+)", re.MULTILINE)


def commands(page: Path) -> list[list[str]]:
    """The command lines that a page shows, as words; lines with an ellipsis are not meant to be typed."""
    found = _COMMAND.findall(page.read_text("utf-8"))
    return [shlex.split(text, comments=True) for text in found if "..." not in text]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_commands_name_verbs_and_options_that_exist(page):
    """A command that fails as printed is the first thing that a newcomer meets."""
    group = typer.main.get_command(app)
    for words in commands(page):
        assert words[1] in VERBS, words
        verb = group.get_command(typer.Context(group), words[1])
        known = options(verb)
        given = {word.partition("=")[0] for word in words[2:] if word.startswith("--")}
        assert given <= known, words


def options(command) -> set[str]:
    """Every long option of a command and of the commands below it."""
    found = {name for one in command.params for name in one.opts if name.startswith("--")}
    for below in getattr(command, "commands", {}).values():
        found |= options(below)
    return found


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page):
    """A broken link says that nobody looks after the page."""
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        if not link.startswith("http"):
            assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_make_targets_exist(page):
    """`make` answers an unknown target with an error."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"(?:`|\$ )make ([a-z0-9-]+)", page.read_text("utf-8")):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_pipeline_files_in_the_readme_are_valid(tmp_path):
    """The first pipeline file of most people is copied from the README."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    whole, kafka = blocks[0], blocks[1].replace("${file:/run/secrets/jaas}", "none")
    file = tmp_path / "shop.yaml"
    file.write_text(whole, "utf-8")
    assert "shop" == load(file).name
    file.write_text("pipeline: shop\nlake: ./lake\nsources:\n" + kafka, "utf-8")
    assert "kafka" == load(file).sources[0].kind
