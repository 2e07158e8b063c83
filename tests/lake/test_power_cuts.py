"""After a power cut the lake has every commit whole, or not at all: what a commit names was on the disk before it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from ingest.config.model import TableRule
from ingest.run import Warm
from tests.gold.depot import Depot
from tests.unstarted import unstarted


@dataclass
class Recorder:
    """Notes what was brought to the disk, and complains about commits that name anything else."""

    files: dict[str, int] = field(default_factory=dict)  # with the sizes that they had
    names: set[str] = field(default_factory=set)  # in folders that were brought to the disk since
    new: set[str] = field(default_factory=set)
    commits: int = 0
    faults: list[str] = field(default_factory=list)

    def synced(self, handle: int) -> None:
        """A file or folder was brought to the disk."""
        place = Path(f"/proc/self/fd/{handle}").resolve()
        if place.is_dir():
            self.names |= {str(each) for each in place.iterdir()}
            self.names.add(str(place))
            self.new = {name for name in self.new if Path(name).parent != place}
        else:
            self.files[str(place)] = place.stat().st_size

    def linked(self, source: str, target: str) -> None:
        """A file got a second name: that of a commit, if it is in a log."""
        place = Path(target)
        if place.parent.name != "_delta_log" or place.suffix != ".json":
            return
        self.commits += 1
        self.new.add(target)
        data = Path(source).read_bytes()
        if self.files.get(str(Path(source).resolve())) != len(data):
            self.faults.append(f"the entry {target} was not whole on the disk")
        if str(place.parent) not in self.names:
            self.faults.append(f"the folder of {target} was not on the disk")
        table = place.parent.parent
        for line in data.splitlines():
            action = json.loads(line).get("add")
            if action is None:
                continue
            file = table / unquote(action["path"])
            vector = action.get("deletionVector")
            if vector is None and self.files.get(str(file)) != action["size"]:
                self.faults.append(f"{file} was not on the disk")
            if str(file) not in self.names:
                self.faults.append(f"the name of {file} was not on the disk")


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Between this process and the system."""
    made = Recorder()
    sync, link = os.fsync, os.link

    def fsync(handle: int) -> None:
        sync(handle)
        made.synced(handle)

    def linked(source: Any, target: Any, **how: Any) -> None:
        made.linked(os.fspath(source), os.fspath(target))
        link(source, target, **how)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", linked)
    return made


def test_what_a_commit_names_is_on_the_disk_before(tmp_path: Path, recorder: Recorder) -> None:
    """An entry that is empty after a power cut hides the batch, or names files without bytes: no engine reads the table."""
    depot = Depot(unstarted(), tmp_path, Warm(), TableRule("yard.depot"))
    for n in range(3):
        depot.row(id=str(n), n="1").row(id="99", n=str(n))
        if n:
            depot.row("DELETE", id=str(n - 1), n="1")
        assert "done" == depot.run(checked=True)[0]
    assert recorder.commits > 12
    assert [] == recorder.faults
    assert set() == recorder.new, "the last names were not brought to the disk"
