"""The wheel from a package index on loopback, by `pip install` and by `pipx install`, with everything that it needs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.lakes import FORMAT, ROOT, change, touch

PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
PIPX = shutil.which("pipx")
SECONDS = 900  # PySpark alone is 400 MB


class Quiet(SimpleHTTPRequestHandler):
    """Serve the files of a folder, and log nothing."""

    def log_message(self, *_words: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a simple index (PEP 503) that has this project's wheel alone."""
    root = tmp_path_factory.mktemp("index")
    page = root / "simple" / "ingest"
    page.mkdir(parents=True)
    subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", str(page), str(ROOT)], check=True, timeout=300)
    (wheel,) = page.glob("ingest-*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    link = f'<a href="{wheel.name}#sha256={digest}" data-requires-python="&gt;=3.11">{wheel.name}</a>'
    (page / "index.html").write_text(f"<!doctype html><title>ingest</title>{link}", "utf-8")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple/"
        server.shutdown()


def environment(**more: object) -> dict[str, str]:
    """The variables of a user who has not heard of this checkout."""
    ours = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if name not in ours} | {
        name: str(value) for name, value in more.items()
    }


def test_pip_finds_it_by_its_name(index: str, tmp_path: Path) -> None:
    """A name, version or tag that pip does not take makes `No matching distribution found` of every installation."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    words = [
        "--python",
        str(python),
        "install",
        "--no-deps",
        "--no-cache-dir",
        "--index-url",
        index,
        "ingest[serve]",
    ]
    subprocess.run([*PIP, *words], check=True, timeout=SECONDS, env=environment())
    assert (tmp_path / "env" / "bin" / "ingest").exists()
    script = "from importlib.metadata import version; print(version('ingest'))"
    done = subprocess.run(
        [python, "-c", script], capture_output=True, text=True, check=True, env=environment()
    )
    assert "0.1.0" == done.stdout.strip()


@pytest.mark.skipif(PIPX is None, reason="no pipx on PATH: pip install pipx")
def test_pipx_installs_the_command(index: str, tmp_path: Path) -> None:
    """What is missing from the dependencies is there by chance wherever the tests run, and missing for the first user."""
    asked = subprocess.run(
        [*PIP, "download", "--no-deps", "--dest", str(tmp_path / "asked"), "msgspec"],
        check=False,
        timeout=300,
    )
    if asked.returncode:
        pytest.skip("no package index that has the dependencies")
    home = environment(
        PIPX_HOME=tmp_path / "pipx", PIPX_BIN_DIR=tmp_path / "bin", PIPX_MAN_DIR=tmp_path / "man"
    )
    done = subprocess.run(
        [str(PIPX), "install", "--python", sys.executable, "--pip-args", f"--extra-index-url {index}", "ingest[serve]"],
        env=home, capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr
    feed = tmp_path / "bins-1.jsonl"
    feed.write_text(change("INSERT", "bins", 1, {"id": "1", "word": "x"}) + "\n", "utf-8")
    touch(feed)

    def ingest(*words: str) -> str:
        """A verb of the installed command."""
        done = subprocess.run(
            [str(tmp_path / "bin" / "ingest"), *words],
            cwd=tmp_path, env=home, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert 0 == done.returncode, done.stderr
        return done.stdout

    assert "ingest 0.1.0" == ingest("--version").splitlines()[0]
    ingest("init", "shop.yaml", "--source", "bins-*.jsonl")
    assert f"format: {FORMAT}" in (tmp_path / "shop.yaml").read_text("utf-8")
    ingest("validate", "shop.yaml")
    assert ["depot.bins"] == [
        one["table"] for one in json.loads(ingest("plan", "shop.yaml", "-o", "json"))[0]["tables"]
    ]
    serving = subprocess.Popen(
        [str(tmp_path / "bin" / "ingest"), "serve", "shop.yaml", "--listen", "127.0.0.1:0", "-o", "json"],
        cwd=tmp_path, env=home, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert serving.stdout is not None
        assert "http://127.0.0.1:" in json.loads(serving.stdout.readline())["listening"]
    finally:
        serving.terminate()
        serving.communicate(timeout=60)
    assert 0 == serving.returncode
