"""The keys of sealed bronze: missing ones, days that are dropped, and another master key."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from ingest.cli.app import app
from ingest.config import load
from ingest.config.secrets import struck
from ingest.errors import ConfigError, IngestError
from ingest.ledgers import decisions, sealing
from ingest.ledgers.maintenance import Kept
from ingest.ledgers.raw import raw
from ingest.store.envelope import SealError
from tests.lake.sealed import KEYS, SEALED, Sealed, batches_of
from tests.silver.test_without_spark import everything


def test_a_missing_or_wrong_key_holds_and_names_the_days(tmp_path: Path, clock: Any) -> None:
    """Nothing is decoded in part, nothing is lost, and nothing new is sealed with a key that is not stored."""
    depot = Sealed(tmp_path)
    depot.grow()
    depot.work()
    clock(1)
    depot.grow()
    depot.land()
    before = everything(depot.lake())

    depot.key("two")
    wrong = r"another master key wrapped the day's key \(its fingerprint is [0-9a-f]{16}, that of `master_key:` [0-9a-f]{16}\)"
    with pytest.raises(
        SealError, match=rf"^Bronze's messages of 2026-03-15 \(batch 2\) cannot be opened: {wrong}"
    ):
        depot.decode()
    depot.grow()
    with pytest.raises(SealError, match=wrong):  # landing more
        depot.land()
    clock(2)
    with pytest.raises(SealError, match=wrong):  # nor on the next day, which has no key yet
        depot.land()
    rejected = depot.lake().ask("SELECT * FROM {rejects}")
    [shown] = raw(depot.lake(), rejected).values()
    assert "another master key wrapped" in shown.text

    depot.says("")
    with pytest.raises(
        SealError, match=r"2026-03-15 \(batch 2\) .* no `bronze: seal:` any more: put its `master_key:` back"
    ):
        depot.decode()
    depot.says("bronze:\n  seal: {command: [cat, key, no]}\n")
    with pytest.raises(
        SealError, match=r"2026-03-15 .*the command of `bronze: seal:` \(cat \.\.\.\) ended with exit code 1"
    ):
        depot.decode()

    depot.says(SEALED)
    depot.key("one")
    files = tmp_path / "lake" / sealing.FOLDER
    [name] = [name for name in depot.key_files if name.startswith("2026-03-15")]
    (files / name).rename(tmp_path / name)
    with pytest.raises(
        SealError, match=r"2026-03-15 \(batch 2\) .* the day's key is not in .*/_seal: put its file back"
    ):
        depot.decode()
    (files / name).write_bytes((tmp_path / name).read_bytes()[:-9])
    with pytest.raises(SealError, match=rf"{name} is damaged or missing: put it back from a backup"):
        depot.decode()
    shutil.copy(next(files.glob("2026-03-14*")), files / name)
    with pytest.raises(SealError, match=rf"{name} was changed: put it back from a backup"):
        depot.decode()
    assert before == everything(depot.lake())
    (tmp_path / name).replace(files / name)
    assert [] == depot.work().unbalanced
    assert depot.lines == depot.lake().ask("SELECT sum(messages) AS n FROM {books}")[0]["n"]


def test_a_dropped_day_is_gone_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Any
) -> None:
    """Only a day that is over and decoded is dropped; a later read names who dropped the key and why."""
    depot = Sealed(tmp_path)
    depot.grow()
    depot.land()
    with pytest.raises(IngestError, match=r"The key of 2026-03-14 is still needed: the day is not over"):
        sealing.drop(depot.lake(), "2026-03-14")
    clock(1)
    with pytest.raises(
        IngestError,
        match=r"The key of 2026-03-14 is still needed: silver has yet to decode messages: `ingest run",
    ):
        sealing.drop(depot.lake(), "2026-03-14")
    depot.grow(broken=False)
    depot.work()
    with pytest.raises(
        IngestError,
        match=r"The key of 2026-03-14 is still needed: open rejects point at its messages, which `ingest replay .*lists them",
    ):
        sealing.drop(depot.lake(), "2026-03-14")
    for text, words in (("yesterday", "is not a day"), ("2026-03-01", "There is no key of 2026-03-01")):
        with pytest.raises(IngestError, match=words):
            sealing.drop(depot.lake(), text)
    [reject] = depot.lake().ask("SELECT * FROM {rejects}")
    from ingest.ledgers import rejects

    rejects.dismiss(depot.lake(), [reject], "seen", "ann")
    with monkeypatch.context() as killed:
        killed.setattr(sealing._Folder, "remove", lambda _folder, _name: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            sealing.drop(depot.lake(), "2026-03-14", "killed", "ann")
    assert not sealing.opener(depot.lake()).dropped  # the key is still there
    sealing.drop(depot.lake(), "2026-03-14", "asked by the customer", "ann")
    assert ["2026-03-15"] == [name[:10] for name in depot.key_files]
    opener = sealing.opener(depot.lake())
    assert {"2026-03-14"} == set(opener.dropped)
    gone = r"the day's key was dropped by ann \(asked by the customer\); what silver holds of these messages is kept"
    with pytest.raises(
        SealError, match=rf"^Bronze's messages of 2026-03-14 \(batch 1\) cannot be opened: {gone}"
    ):
        sealing.refuse_unreadable(depot.lake(), opener, (1, 2))
    sealing.refuse_unreadable(depot.lake(), opener, (2, 2))
    [shown] = raw(depot.lake(), [reject]).values()
    assert "dropped by ann" in shown.text
    with pytest.raises(IngestError, match="There is no key of 2026-03-14"):
        sealing.drop(depot.lake(), "2026-03-14")
    depot.grow()
    assert [] == depot.work().unbalanced  # goes on


def problems(depot: Sealed) -> list[str]:
    """What `ingest status` says of sealed messages."""
    result = CliRunner().invoke(app, ["status", str(depot.file), "-o", "json"])
    return [one["sentence"] for one in json.loads(result.stdout)["causes"] if "sealed" in one["cause"]]


def test_a_lost_key_of_the_day_is_never_replaced_in_silence(tmp_path: Path, clock: Any) -> None:
    """A second key must not hide it; once it is given up, its messages are rejects and the day can be used again."""
    depot = Sealed(tmp_path)
    depot.grow(broken=False)
    depot.work()
    clock(1)
    assert [] == problems(depot)
    for batch in (2, 4):
        depot.grow(broken=False)
        depot.land()
        [name] = [name for name in depot.key_files if name.startswith("2026-03-15")]
        file = tmp_path / "lake" / sealing.FOLDER / name
        data = file.read_bytes()
        file.unlink()
        depot.grow(broken=False)
        said = r"^Bronze's messages of 2026-03-15 .*cannot be opened: the day's key is not in .*_seal: put its file back"
        with pytest.raises(
            SealError, match=rf"{said} .*ingest maintain .*depot\.yaml --drop-key 2026-03-15` gives"
        ):
            depot.land()
        with pytest.raises(SealError, match=said):
            depot.decode()
        [problem] = problems(depot)
        assert sealing.lost_since(depot.lake()), "the folder was changed then"
        assert "ingest maintain" in problem
        assert "--drop-key 2026-03-15" in problem

        sealing.drop(depot.lake(), "2026-03-15", "its disk broke", "ann")
        assert [] == problems(depot)
        assert [] == depot.work().unbalanced
        rejected = depot.lake().ask(
            f"SELECT reason, count(*) AS n FROM {{rejects}} WHERE batch = {batch} GROUP BY reason"
        )
        landed = depot.lake().ask(f"SELECT count(*) AS n FROM {{bronze.message}} WHERE batch = {batch}")
        assert [("key-dropped", landed[0]["n"])] == [(one["reason"], one["n"]) for one in rejected]
        assert [] == depot.lake().ask(f"SELECT * FROM {{rejects}} WHERE batch = {batch + 1}")
        opener = sealing.opener(depot.lake())
        sealing.refuse_unreadable(depot.lake(), opener, (batch + 1, batch + 1))
        with pytest.raises(
            SealError, match=rf"2026-03-15 \(batch {batch}\).* dropped by ann \(its disk broke\)"
        ):
            sealing.refuse_unreadable(depot.lake(), opener, (batch, batch + 1))
        with pytest.raises(IngestError, match="still needed: the day is not over"):
            sealing.drop(depot.lake(), "2026-03-15")
        file.write_bytes(data)  # found again
        sealing.refuse_unreadable(depot.lake(), sealing.opener(depot.lake()), (batch, batch))
        file.unlink()
    gone = depot.lake().ask('SELECT batch, source, topic, partition, "offset", value FROM {bronze.message}')
    opener = sealing.opener(depot.lake())
    assert {2, 3, 4} == {row["batch"] for row in gone if opener.is_lost(row["value"])}


def test_a_lost_key_of_another_day_is_a_problem_until_its_messages_are_given_up(
    tmp_path: Path, clock: Any
) -> None:
    """The run goes on with what it can read; a lake without any of its keys does not."""
    depot = Sealed(tmp_path)
    files = tmp_path / "lake" / sealing.FOLDER
    for n in range(3):
        clock(n)
        depot.grow(broken=False)
        depot.work()
    kept = {name: (files / name).read_bytes() for name in depot.key_files}
    for name in kept:
        (files / name).unlink()
    clock(3)
    depot.grow(broken=False)
    with pytest.raises(
        SealError, match=r"of 2026-03-14, 2026-03-15, 2026-03-16 cannot be opened: the day's key"
    ):
        depot.work()
    for name in list(kept)[1:]:
        (files / name).write_bytes(kept[name])
    assert [] == depot.work().unbalanced
    [problem] = problems(depot)
    assert "messages of 2026-03-14 cannot be opened" in problem
    sealing.drop(depot.lake(), "2026-03-14", "lost")
    assert [] == problems(depot)
    assert {"2026-03-14"} == set(sealing.opener(depot.lake()).dropped)


def test_a_status_needs_no_access_to_the_keys(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who may not list the keys gets the rest of the status instead of an error."""
    depot = Sealed(tmp_path)
    depot.grow(broken=False)
    depot.work()
    asked = []

    def denied(folder: sealing._Folder) -> list[str]:
        asked.append(folder.path)
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(sealing._Folder, "names", denied)
    assert [] == problems(depot)
    assert asked


def test_old_keys_are_dropped_once_nothing_needs_them(tmp_path: Path, clock: Any) -> None:
    """`keep_days` is a bound for what is done with, not a way to lose messages."""
    depot = Sealed(tmp_path, SEALED.replace("'}", "', keep_days: 2}"))
    for n in range(5):
        clock(n)
        depot.grow(broken=n == 1)
        depot.work()
    assert ["2026-03-14"] == sealing.drop_old(depot.lake())  # that of the 15th has an open reject
    assert ["2026-03-15", "2026-03-16", "2026-03-17", "2026-03-18"] == [name[:10] for name in depot.key_files]
    assert [] == sealing.drop_old(depot.lake())
    [one] = decisions.read(depot.lake()).of(decisions.KEY_DROPPED)
    assert ("2026-03-14", "keep_days: 2") == (one.subject, one.reason)


def test_the_master_key_is_rotated(tmp_path: Path, clock: Any) -> None:
    """Both keys read until all are wrapped by the new one; then the old one is not needed any more."""
    depot = Sealed(tmp_path)
    for n in range(2):
        clock(n)
        depot.grow()
        depot.work()
    depot.key("two")
    depot.key("one", file="former")
    with pytest.raises(SealError, match="another master key wrapped the day's key"):
        sealing.rewrap(depot.lake())
    depot.says(SEALED.replace("'}", "', previous_master_key: '${file:former}'}"))
    clock(2)
    depot.grow()
    assert [] == depot.work().unbalanced  # the new day's key is wrapped by the new one
    before = depot.lake().ask("SELECT hex(value) AS v FROM {bronze.message}")
    assert 2 == sealing.rewrap(depot.lake())
    assert 0 == sealing.rewrap(depot.lake())
    depot.says(SEALED)
    sealing.refuse_unreadable(depot.lake(), sealing.opener(depot.lake()), (1, 3))
    assert before == depot.lake().ask("SELECT hex(value) AS v FROM {bronze.message}")
    sealing.opener(depot.lake()).opened(batches_of(depot.lake())[0])
    depot.key("one")
    with pytest.raises(SealError, match=r"3 days|2026-03-14, 2026-03-15, 2026-03-16 \(batch 1 to 3\)"):
        sealing.refuse_unreadable(depot.lake(), sealing.opener(depot.lake()), (1, 3))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "{master_key: hunter2}",
            "a master key is 32 bytes in hex or base64; make one with `openssl rand -hex 32`",
        ),
        ("{master_key: '${file:none}'}", "none of ${file:...} cannot be read"),
        ("{master_key: '${NO_SUCH_KEY}'}", "the environment variable NO_SUCH_KEY is not set"),
        ("{keep_days: 3}", "seal takes either master_key or command, one of the two"),
        ("{command: [cat, key], master_key: '${file:key}'}", "seal takes either master_key or command"),
        ("{master_kye: x, command: [x]}", "the key 'master_kye' is unknown here; did you mean master_key"),
        ("{command: [cat, key], keep_days: soon}", "'soon' is not a positive whole number"),
    ],
)
def test_faults_of_the_pipeline_file(tmp_path: Path, text: str, words: str) -> None:
    """With the line, and without the value of a key."""
    depot = Sealed(tmp_path)
    depot.says(f"bronze:\n  seal: {text}\n")
    with pytest.raises(ConfigError) as caught:
        load(depot.file)
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert KEYS["one"] not in str(caught.value)


def test_a_command_prints_the_master_key(tmp_path: Path, clock: Any) -> None:
    """It is run without a shell; the key is struck out of texts, and shown by no verb."""
    depot = Sealed(tmp_path, f"bronze:\n  seal: {{command: [cat, {tmp_path}/key]}}\n")
    depot.grow()
    assert [] == depot.work().unbalanced
    depot.says(SEALED)  # the same key
    depot.grow()
    assert [] == depot.work().unbalanced
    assert "it is ***" == struck(f"it is {KEYS['one']}", depot.pipeline)
    found = CliRunner().invoke(app, ["rejects", str(depot.file), "-o", "json"])
    assert 0 == found.exit_code
    checked = CliRunner().invoke(app, ["validate", str(depot.file), "-o", "json"])
    shown = CliRunner().invoke(app, ["rejects", "show", str(depot.file), "1"])
    assert '{"broken": ' in shown.stdout
    assert KEYS["one"] not in shown.output + found.output + checked.output + repr(depot.pipeline)


def test_maintain_drops_and_rewraps_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Any) -> None:
    """The verb's options reach the keys, and its table and JSON count the days."""
    depot = Sealed(tmp_path, SEALED.replace("'}", "', keep_days: 3}"))
    for n in (0, 1, 2):
        clock(n)
        depot.grow(broken=False)
        depot.work()
    depot.key("two")
    depot.key("one", file="former")
    depot.says(SEALED.replace("'}", "', previous_master_key: '${file:former}', keep_days: 3}"))
    lake = depot.lake(SimpleNamespace())
    monkeypatch.setattr("ingest.cli.maintain_verb.opened", lambda *_given, **_named: nullcontext(lake))
    monkeypatch.setattr(
        "ingest.cli.progress.ProgressLine", lambda *_given: nullcontext(SimpleNamespace(tell=print))
    )
    monkeypatch.setattr("ingest.ledgers.maintenance.maintain", lambda *_given, **_named: [Kept("bronze")])
    monkeypatch.setattr("ingest.cli.maintain_verb._tables", lambda _lake: [])
    words = ["maintain", str(depot.file), "--rewrap-keys", "--drop-key", "2026-03-15", "--reason", "asked"]
    clock(4)
    found = CliRunner().invoke(app, [*words, "-o", "json"])
    assert 0 == found.exit_code, found.output
    assert "3 keys wrapped with the present master key" in found.output
    assert 2 == json.loads(found.stdout[found.stdout.index("[") :])[0]["keys"]
    assert ["2026-03-16"] == [name[:10] for name in depot.key_files]
    dropped = {one.subject: one.reason for one in decisions.read(lake).of(decisions.KEY_DROPPED)}
    assert {"2026-03-15": "asked", "2026-03-14": "keep_days: 3"} == dropped
    again = CliRunner().invoke(app, words)
    assert 2 == again.exit_code
    assert "There is no key of 2026-03-15" in again.output
