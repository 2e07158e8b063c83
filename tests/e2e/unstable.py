"""Servers that the system has no packages of, or older ones: those of Debian's unstable distribution, unpacked and not installed."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import unquote

from tests.e2e.services import Missing

_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib/mysql/private")
_RUN = """\
#!/bin/sh
exec {loader} --argv0 "$0" --library-path {libraries} "$0.program" "$@"
"""


def unpacked(package: str, *more: str) -> Path:
    """The folder in which a package lies, with others and with the libraries that they need, as under ``/``.

    Only with ``UNSTABLE_SERVERS`` in the environment: what the archive has may be another version tomorrow, and a test that
    passes today must not fail then.

    Raises:
        Missing: nobody asked for them, this is no Debian, or its archive does not answer.
    """
    if not os.environ.get("UNSTABLE_SERVERS"):
        raise Missing("with UNSTABLE_SERVERS=1 it is fetched from Debian's unstable distribution")
    here = (
        Path(tempfile.gettempdir()) / f"ingest-e2e-{os.geteuid()}" / package
    )  # which the servers' users may enter
    here.parent.mkdir(mode=0o755, exist_ok=True)
    if here.parent.stat().st_uid != os.geteuid():
        raise Missing(f"{here.parent} is another user's")
    with here.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not here.exists():
            work = Path(tempfile.mkdtemp(dir=here.parent))
            try:
                _unpack(work, package, *more)
                (work / "root").chmod(0o755)
                (work / "root").rename(here)
            finally:
                shutil.rmtree(work)
    return here


def program(root: Path, name: str) -> str:
    """A program of an unpacked package, which runs with the libraries beside it, also where another one starts it."""
    path = root / name
    if not path.with_name(f"{path.name}.program").exists():
        loader = next(root.glob("usr/lib*/ld-linux-*.so.*"))
        libraries = ":".join(str(root / folder) for folder in _LIBRARIES)
        path.rename(path.with_name(f"{path.name}.program"))
        path.write_text(_RUN.format(loader=loader, libraries=libraries))
        path.chmod(0o755)
    return str(path)


def _unpack(work: Path, *packages: str) -> None:
    for folder in ("lists/partial", "cache/archives/partial", "debs", "root"):
        (work / folder).mkdir(parents=True)
    for folder in ("debs", "root"):
        (work / folder).chmod(0o755)
    (work / "sources.list").write_text(f"deb [signed-by={_KEYS}] {_archive()} sid main\n")
    (work / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{work}/sources.list";\nDir::Etc::sourceparts "/dev/null";\nDir::State::status "/dev/null";\n'
        f'Dir::State::lists "{work}/lists";\nDir::Cache "{work}/cache";\nAcquire::http::Timeout "20";\nAPT::Sandbox::User "";\n'
    )
    apt = ["apt-get", "-c", str(work / "apt.conf")]
    _run(work, *apt, "update")
    needed = _run(work, *apt, "--no-install-recommends", "--print-uris", "-y", "install", *packages)
    names = {
        Path(each).name.partition("_")[0] for each in re.findall(r"^'(\S+)'", unquote(needed), re.MULTILINE)
    }
    wanted = [name for name in names if name in packages or re.match(r"(?!libperl)(lib|zlib)", name)]
    _run(work / "debs", *apt, "download", *wanted)
    for file in (work / "debs").glob("*.deb"):
        _run(work, "dpkg", "-x", str(file), str(work / "root"))


def _archive() -> str:
    """The archive that this machine has its packages from."""
    if shutil.which("apt-get") is None or not Path(_KEYS).exists():
        raise Missing("only a Debian can get packages of its unstable distribution")
    known = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)"], capture_output=True, text=True, check=False
    )
    archive = next((uri for uri in known.stdout.split() if uri.rstrip("/").endswith("/debian")), None)
    if archive is None:
        raise Missing("this machine's list of packages names no archive of Debian")
    return archive


def _run(folder: Path, *command: str) -> str:
    shown = " ".join(command[:1] + command[-2:])
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=folder)
    except subprocess.TimeoutExpired:
        raise Missing(f"{shown}: no end after 300 s") from None
    if done.returncode:
        raise Missing(f"{shown}: {(done.stdout + done.stderr)[-300:]}")
    return done.stdout
