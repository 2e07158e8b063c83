"""The jars that Spark needs for Delta and Kafka: pinned, fetched once with PySpark's Ivy, checked by SHA-256.

Each is fetched without its dependencies: Spark ships those, and a second, older copy would do harm. No repository is
named here: Ivy's default is used, or the user's Ivy settings file.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import tempfile
import urllib.parse
import urllib.request
import xml.sax.saxutils
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ingest.errors import SetupError
from ingest.spark import cache, trust
from ingest.spark.java import find

FOLDER_VARIABLE = "INGEST_JARS_DIR"
SETTINGS_VARIABLE = "INGEST_IVY_SETTINGS"
_FETCH_SECONDS = 600
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned jar; ``kind`` is what it is needed for, ``size`` its bytes."""

    kind: str  # delta | kafka
    group: str
    artifact: str
    version: str
    size: int
    sha256: str

    @property
    def file(self) -> str:
        """Its file name, the same in the cache and in a folder of the user's own."""
        return f"{self.artifact}-{self.version}.jar"


SPARK, DELTA = "4.2.0", "4.4.0"
"""The versions that the tests run with, which the package requires."""
PINNED = (
    Jar("delta", "io.delta", "delta-spark_4.2_2.13", DELTA, 9_515_916,
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead"),
    Jar("delta", "io.delta", "delta-storage", DELTA, 113_863,
        "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
    Jar("kafka", "org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK, 494_879,
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705"),
    # its own 4.2.0 is not available everywhere; this one works with the 4.2.0 source above
    Jar("kafka", "org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", 64_975,
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767"),
    Jar("kafka", "org.apache.kafka", "kafka-clients", "3.9.2", 9_220_052,
        "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8"),
    Jar("kafka", "org.apache.commons", "commons-pool2", "2.13.1", 156_457,
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f"),
)  # fmt: skip
KINDS = ("delta", "kafka")


def folder() -> Path:
    """The folder of the jars: ``INGEST_JARS_DIR``, else a folder of the cache."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    return Path(chosen).expanduser().absolute() if chosen else cache.folder() / "jars"


def require(*kinds: str) -> list[Path]:
    """The paths of the jars of these kinds.

    Raises:
        SetupError: one is missing or incomplete; the text names the command that gets it.
    """
    where = folder()
    wanted = [(jar, where / jar.file) for jar in PINNED if jar.kind in kinds]
    for jar, path in wanted:
        if not path.is_file():
            raise SetupError(f"{path} is missing: type `ingest jars fetch`.")
        if path.stat().st_size != jar.size or _sha256(path) != jar.sha256:  # 15 ms for all six
            raise SetupError(f"{path} is not the pinned file: delete it and type `ingest jars fetch`.")
    return [path for _, path in wanted]


def faults(jar: Jar) -> str:
    """The fault of this jar's file: ``missing``, ``wrong`` (its checksum differs), or none."""
    path = folder() / jar.file
    if not path.is_file():
        return "missing"
    return "" if _sha256(path) == jar.sha256 else "wrong"


def fetch(
    kinds: Iterable[str] = KINDS, *, settings: str = "", say: Callable[[str], None] = lambda _: None
) -> list[Path]:
    """Fetch missing and wrong jars, one at a time, and return the paths of all jars of these kinds.

    Several fetches may run at once: each works in a folder of its own and moves whole, checked files.

    Args:
        kinds: ``delta``, ``kafka`` or both.
        settings: the URL of a Maven repository, or an Ivy settings file, for a closed network;
            ``INGEST_IVY_SETTINGS`` unless given.
        say: called with one line per jar that is fetched.

    Raises:
        SetupError: no repository answered, a checksum differs, or the folder cannot be written.
    """
    wanted = [jar for jar in PINNED if jar.kind in set(kinds)]
    for jar in wanted:
        if faults(jar):
            say(f"fetching {jar.file}")
            _fetch_one(jar, settings or os.environ.get(SETTINGS_VARIABLE, ""))
    return [folder() / jar.file for jar in wanted]


def _fetch_one(jar: Jar, settings: str) -> None:
    where = folder()
    try:
        where.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".fetch-", dir=where))
    except OSError as error:
        raise _unwritable(where, error) from error
    try:
        report = _ivy(jar, work, settings)
        downloaded = work / jar.file
        _check(jar, downloaded, report)
        downloaded.replace(where / jar.file)
    except OSError as error:
        raise _unwritable(where, error) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _check(jar: Jar, downloaded: Path, report: str) -> None:
    if not downloaded.is_file():
        raise SetupError(
            f"{jar.file} could not be fetched: {_cause(report)}. Or name your own repository's URL, or an Ivy "
            f"settings file, with --settings or {SETTINGS_VARIABLE}; or put the jars into a folder and name it "
            f"with {FOLDER_VARIABLE}."
        )
    if (sha256 := _sha256(downloaded)) != jar.sha256:
        raise SetupError(
            f"{jar.file} came with SHA-256 {sha256} instead of {jar.sha256} and was thrown away: "
            "the repository that answered does not hold the original; name another with --settings."
        )


def _cause(report: str) -> str:
    """What went wrong and what to do, from the first error that Ivy reports."""
    error = re.search(r"(?:HttpClientHandler|BasicURLHandler): (.*?) ?url=", report)
    said = error[1] if error else ""
    for pattern, cause in _CAUSES:
        if pattern.search(said):
            return f"{cause} ({said[:200]})"
    if said:
        return f"the repository answered: {said[:200]}"
    if "UNRESOLVED" in report:
        return "no repository has it"
    return "no repository answered in time: check the network or proxy"


_CAUSES = (
    (
        re.compile("PKIX|certificate|SSL|TLS"),
        f"the repository's certificate is not trusted: name your company's certificates with {trust.VARIABLES[0]}",
    ),
    (re.compile("407|[Pp]roxy"), "the proxy refused: check https_proxy"),
    (re.compile("refused"), "nothing answers there: check the network and https_proxy"),
    (
        re.compile("not known|UnknownHost|resolution|no such host|[.]invalid"),
        "a host's name is not known: check the network and https_proxy",
    ),
    (re.compile("timed out|[Tt]imeout"), "there was no answer in time: check the network and https_proxy"),
)


def _settings_file(settings: str, work: Path) -> Path:
    """An Ivy settings file: the user's own, or one for the repository at the user's URL."""
    if not settings.startswith(("http://", "https://")):
        return Path(settings).expanduser().absolute()
    root = xml.sax.saxutils.quoteattr(settings.rstrip("/") + "/")
    file = work / "settings.xml"
    file.write_text(
        '<ivysettings><settings defaultResolver="own"/><resolvers>'
        f'<ibiblio name="own" m2compatible="true" root={root}/></resolvers></ivysettings>',
        "utf-8",
    )
    return file


def _ivy(jar: Jar, work: Path, settings: str) -> str:
    """Run PySpark's Ivy for one jar and return its report; only the file shows whether it worked."""
    command = [
        str(find().executable),
        *_proxy_options(),
        *trust.java_options(),
        *("-cp", f"{_spark_jars()}{os.sep}*", "org.apache.ivy.Main"),
        *(("-settings", str(_settings_file(settings, work))) if settings else ()),
        *("-cache", str(work / "ivy")),
        *("-dependency", jar.group, jar.artifact, jar.version),
        *("-confs", "default", "-notransitive"),
        *("-retrieve", f"{work}{os.sep}[artifact]-[revision].[ext]"),
    ]
    try:
        done = subprocess.run(
            command, cwd=work, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return ""
    _log.debug("%s\n%s", done.stdout, done.stderr)
    return done.stdout + done.stderr


def _proxy_options() -> list[str]:
    """Java options for the proxy: Java ignores the proxy variables that other tools follow."""
    options, proxies = [], urllib.request.getproxies()
    for scheme in ("http", "https"):
        given = proxies.get(scheme, "")
        proxy = urllib.parse.urlsplit(given if "://" in given or not given else f"http://{given}")
        if proxy.hostname:
            options.append(f"-D{scheme}.proxyHost={proxy.hostname}")
            options.append(f"-D{scheme}.proxyPort={proxy.port or 80}")
    direct = [host.strip() for host in proxies.get("no", "").split(",") if host.strip()]
    if options and direct:
        hosts = "|".join(f"*{host}" if host.startswith(".") else host for host in direct)
        options.append(f"-Dhttp.nonProxyHosts={hosts}")
    return options


def _spark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SetupError("PySpark is not installed: type `pip install -e .` in this project's folder.")
    return Path(spec.origin).parent / "jars"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unwritable(where: Path, error: OSError) -> SetupError:
    reason = error.strerror or str(error)
    return SetupError(
        f"{where} cannot be written ({reason}): name another folder with {FOLDER_VARIABLE} or {cache.VARIABLE}."
    )
