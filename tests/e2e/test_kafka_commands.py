"""The commands on a Kafka pipeline, as an operator types them: a loop, a loss, its acceptance."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.e2e.topics import Sent

ROOT = Path(__file__).parent.parent.parent


def command(*arguments):
    """``ingest`` of this tree."""
    return [sys.executable, "-m", "ingest", *map(str, arguments)]


def outcome(*arguments):
    """Exit code, JSON and errors of a command that ends by itself."""
    done = subprocess.run(
        command(*arguments, "--output", "json"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or "null"), done.stderr


@pytest.fixture
def file(tmp_path, broker, topics):
    """A pipeline of one topic, named like the pipeline."""
    name = f"shed-{uuid.uuid4().hex[:8]}"
    topics.make(name)
    path = tmp_path / f"{name}.yaml"
    path.write_text(
        f"pipeline: {name}\nlake: ./lake\nengine: auto\nsources:\n"
        f"  - {{name: tools, format: canal, bootstrap_servers: '{broker.address}', topics: [{name}]}}\n"
    )
    return path


def test_loop(file, topics):
    """One session goes on reading what comes, and ends cleanly when asked to."""
    loop = subprocess.Popen(
        command("run", file, "--stage", "bronze", "--every", "1s", "--output", "json"),
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        batches = []
        for number in range(3):
            topics.send(file.stem, [Sent(b"%d" % number)] * 5)
            deadline = time.monotonic() + 120
            while len(batches) == number and time.monotonic() < deadline:
                tick = json.loads(loop.stdout.readline())
                batches += [tick["read"]] if tick["batch"] else []
        loop.send_signal(signal.SIGTERM)
        assert 0 == loop.wait(60)
    finally:
        loop.kill()
    assert [5, 5, 5] == batches


def test_loss_and_acceptance(file, topics):
    """The run fails until the loss is accepted by name, and then goes on where there is something."""
    topics.send(file.stem, [Sent(b"%d" % n) for n in range(10)])
    assert 0 == outcome("run", file, "--stage", "bronze")[0]
    topics.send(file.stem, [Sent(b"%d" % n) for n in range(10)])
    topics.trim(file.stem, 0, 15)
    code, result, errors = outcome("run", file, "--stage", "bronze")
    assert (1, 0) == (code, result["read"])
    assert "accept-gap" in errors
    code, _, errors = outcome("accept-gap", file, "tools", f"{file.stem}/7")
    assert 2 == code
    assert f"there are gaps at {file.stem}/0" in errors
    code, accepted, _ = outcome("accept-gap", file, "tools", f"{file.stem}/0")
    assert (0, [f"{file.stem}/0"]) == (code, [one["place"] for one in accepted])
    code, result, _ = outcome("run", file, "--stage", "bronze")
    assert (0, 5) == (code, result["read"])
