"""A fault's record: what a worker reports to the driver where only text passes."""

from __future__ import annotations

import io
import traceback

import pytest

from ingest import errors
from ingest.errors import Fault, FaultError, fault_of
from ingest.store.envelope import SealError


class _OtherError(FaultError):
    """A fault of another kind."""


_SAID = 'row "7\n  ingest-fault: ["SealError", "x", {}]" of t\\1'  # as hostile as a value of a message


def _stumble() -> None:
    raise _OtherError(_SAID, {"part": 3})


def _trace(error: FaultError) -> str:
    """What Spark brings back of a worker's error."""
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("only", [True, False], ids=["a report", "a trace"])
def test_a_fault_comes_back_whole(only: bool) -> None:
    """A sentence that was cut at a line's end, or read from another's words, would name the wrong row."""
    error = _OtherError(_SAID, {"row": "ä\n", "part": 3})
    text = str(error.fault) if only else f"Py4JJavaError: job aborted\n{_trace(error)}\tat org.apache"
    assert Fault("_OtherError", _SAID, {"row": "ä\n", "part": 3}) == fault_of(text, _OtherError)
    assert error.fault == fault_of(error, _OtherError)


def test_only_the_kind_asked_for_is_one() -> None:
    """A mirror would be held for the fault of another place."""
    text = _trace(_OtherError("the disk", {})) + _trace(SealError("the key is gone."))
    assert "the key is gone." == getattr(fault_of(text, SealError), "text", None)
    assert fault_of(_OtherError("the disk", {}), SealError) is None
    assert fault_of("the key is gone", SealError) is None
    assert fault_of(str(SealError("the key is gone.").fault)[:-5], SealError) is None, "cut off"


@pytest.mark.parametrize("variable", ["", "SPARK_HIDE_TRACEBACK", "SPARK_SIMPLIFIED_TRACEBACK"])
def test_a_worker_of_spark_sends_the_fault(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error whose notes Spark leaves out would stop the run with a trace, instead of going on before the hole."""
    from pyspark.util import handle_worker_exception

    if variable:
        monkeypatch.setenv(variable, "1")
    sent = io.BytesIO()
    try:
        _stumble()
    except _OtherError as error:
        handle_worker_exception(error, sent)
    fault = fault_of(sent.getvalue()[8:].decode(), _OtherError)
    assert Fault("_OtherError", _SAID, {"part": 3}) == fault


def test_the_text_itself_is_for_the_operator() -> None:
    """A record in JSON is no sentence: where the error is shown, only its words are."""
    assert "the key is gone." == str(SealError("the key is gone."))


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("rows of shop.orders came twice", "Rows of shop.orders came twice"),
        ("ties: two changes at one place", "Ties: two changes at one place"),
        ("id = 1: word was 'a'", "id = 1: word was 'a'"),
        ("shop.orders was loaded again", "shop.orders was loaded again"),
        ("1 change", "1 change"),
        ("", ""),
    ],
)
def test_a_name_keeps_its_letters_at_the_beginning_of_a_sentence(said: str, shown: str) -> None:
    """`Id = 1` names a column that the table does not have, `Shop.orders` another table."""
    assert shown == errors.capitalised(said)
