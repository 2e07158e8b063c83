"""A listener that asks for user and password, the login taken from where secrets are kept."""

from __future__ import annotations

import json
import uuid

import pytest

from ingest.config import load
from ingest.operate import dry_run
from ingest.run import run
from tests.e2e.broker import PASSWORD, jaas
from tests.e2e.test_kafka_commands import outcome
from tests.e2e.topics import Sent

pytestmark = pytest.mark.spark
WRONG = "fork-and-hoe"


@pytest.fixture(params=["PLAIN", "SCRAM-SHA-256"])
def mechanism(request):
    """How the client shows who it is."""
    return request.param


@pytest.fixture
def written(tmp_path, broker, topics, mechanism):
    """Writes a pipeline file whose login is the reference given; its topic holds five messages."""
    name = topics.make(f"shed-{uuid.uuid4().hex[:8]}")
    topics.send(name, [Sent(b"%d" % n) for n in range(5)])

    def write(login):
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": login,
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text(
            f"pipeline: {name}\nlake: ./lake\nengine: auto\nsources:\n  - {{name: tools, kind: kafka, format: canal, "
            f"bootstrap_servers: '{broker.guarded}', topics: [{name}], kafka: {json.dumps(settings)}}}\n"
        )
        return path

    return write


def test_login_from_the_environment(spark, written, mechanism, monkeypatch):
    """Driver and tasks must both get the login, or nothing lands."""
    monkeypatch.setenv("SHED_LOGIN", jaas(mechanism))
    result = run(spark, load(written("${SHED_LOGIN}")), ("bronze",))
    assert (5, []) == (result.read, result.failures)


def test_login_from_a_file(spark, written, mechanism, tmp_path):
    """A mounted secret ends with a newline, which is not part of it."""
    (tmp_path / "login").write_text(jaas(mechanism) + "\n")
    result = run(spark, load(written("${file:./login}")), ("bronze",))
    assert (5, []) == (result.read, result.failures)


def test_wrong_password(written, mechanism, monkeypatch):
    """One sentence that says whose login was refused, without the password and without Java's stack; nothing landed."""
    monkeypatch.setenv("SHED_LOGIN", jaas(mechanism, WRONG))
    file = written("${SHED_LOGIN}")
    code, result, errors = outcome("run", file, "--stage", "bronze")
    assert (1, 0, None) == (code, result["read"], result["batch"])
    (text,) = result["failures"]
    reported = [line for line in errors.splitlines() if f"{file.stem}: bronze:" not in line]
    assert [f"error: {file.stem}: {text}"] == reported, "progress apart"
    assert "source tools: the brokers 127.0.0.1" in text
    assert "SaslAuthenticationException: Authentication failed" in text
    assert all(one not in errors + json.dumps(result) for one in (WRONG, PASSWORD, "jaas"))


@pytest.mark.parametrize("password", [PASSWORD, WRONG])
def test_plan_logs_in_without_java(written, mechanism, monkeypatch, password):
    """The login is carried over to the other client, and its refusal shows no password."""
    monkeypatch.setenv("SHED_LOGIN", jaas(mechanism, password))
    pipeline = load(written("${SHED_LOGIN}"))
    assert "" == dry_run.why_spark(pipeline)
    found = dry_run.foresee(pipeline, None, 0)
    if password == PASSWORD:
        assert (5, []) == (found["sources"][0]["messages"], found["problems"])
        return
    [text] = found["problems"]
    assert "source tools: the brokers 127.0.0.1" in text
    assert "uthentication fail" in text
    assert all(one not in text for one in (WRONG, PASSWORD, "jaas"))
