"""The short ways of usual values, against the long way that every value could take."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest import values
from ingest.decoding import rows
from ingest.decoding.converters import zoned

ZONES = (
    *("UTC", "Asia/Shanghai", "Asia/Kolkata", "America/New_York", "Australia/Lord_Howe"),
    *("Africa/Monrovia", "Pacific/Apia", "Europe/Dublin", "no/such"),
)
moments = st.one_of(
    st.datetimes(), st.datetimes(values.EPOCH.replace(year=1900), values.EPOCH.replace(year=2040))
)


def outcome(read: Callable[[str, str], str], text: str, zone: str) -> str:
    """What is read, or that it is refused."""
    try:
        return read(text, zone)
    except (ValueError, OverflowError):
        return "refused"


@given(
    moments,
    st.sampled_from(ZONES),
    st.sampled_from(" T"),
    st.sampled_from(["", "Z", ".5", "+01:00", "+00:00", " +00:00"]),
)
def test_instants(moment: dt.datetime, zone: str, blank: str, rest: str):
    """An hour kept for its zone and used for another instant shifts it by the zone's offset."""
    text = moment.replace(microsecond=0).isoformat(blank) + rest
    assert outcome(values.zoned_text, text, zone) == outcome(zoned, text, zone)


@pytest.mark.parametrize(
    "zone", ["Australia/Lord_Howe", "America/Goose_Bay", "Asia/Shanghai", "Africa/Monrovia"]
)
@pytest.mark.parametrize("year", [1919, 1972, 1988, 2010])
def test_instants_where_clocks_are_changed(zone: str, year: int):
    """Within an hour in which clocks are changed, two offsets hold."""
    start = values.EPOCH.replace(year=year)
    offsets = [ZoneInfo(zone).utcoffset(start + dt.timedelta(hours=hour)) for hour in range(8784)]
    for hour in (hour for hour in range(1, 8784) if offsets[hour - 1] != offsets[hour]):
        for minute in range(-90, 91):
            text = str(start + dt.timedelta(hours=hour, minutes=minute, seconds=59))
            found = outcome(zoned, text, zone)
            assert found == outcome(values.zoned_text, text, zone)
            assert (found == "refused") == (len(instants(text, zone)) != 1), text


def instants(text: str, zone: str) -> set[dt.datetime]:
    """The instants at which clocks of a zone showed a time."""
    local = dt.datetime.fromisoformat(text)
    both = {local.replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(dt.UTC) for fold in (0, 1)}
    return {one for one in both if one.astimezone(ZoneInfo(zone)).replace(tzinfo=None) == local}


def test_a_local_time_that_occurs_twice_gives_no_instant():
    """Every second guess would be an hour wrong, silently; an offset or the event's time decides."""
    assert "refused" == outcome(zoned, "2024-11-03 01:30:00", "America/New_York")
    assert "refused" == outcome(zoned, "2024-03-10 02:30:00", "America/New_York")
    assert "2024-11-03T06:30:00Z" == zoned("2024-11-03 01:30:00-05:00", "America/New_York")
    assert "2024-11-03T07:00:00Z" == zoned("2024-11-03 02:00:00", "America/New_York")
    assert values.instant_micros("2024-11-03 01:30:00", "America/New_York")


@pytest.mark.parametrize(
    "text",
    [
        *("2024-02-30 10:00:00", "2024-13-01 10:00:00", "2024-01-01 24:00:00", "2024-01-01 10:60:00"),
        *("2024-W18-3T08:20:17", "20240501T08:20:17.1", "2024-05-01T08+08:00", "2024-05-01x10:00:00"),
        *("٢٠٢٤-05-01 10:00:00", "0001-01-01 00:00:00", "9999-12-31 23:59:59", ""),
    ],
)
def test_odd_texts(text: str):
    """A text that only looks like the usual form must not be copied as if it were."""
    for zone in ("UTC", "Asia/Shanghai", "America/New_York"):
        assert outcome(values.zoned_text, text, zone) == outcome(zoned, text, zone)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7),
        ("-7", -7),
        ("007", 7),
        ("", None),
        ("+7", None),
        ("٣", None),
        ("7 ", None),
        ("1" * 101, None),
    ],
)
def test_integers(text: str, expected: int | None):
    """Python reads more as a number than any source writes."""
    assert expected == values.integer(text)


@given(moments, st.sampled_from(ZONES[:-1]), st.sampled_from(["", "Z", "+01:00"]))
def test_microseconds_of_instants(moment: dt.datetime, zone: str, rest: str):
    """Read in two ways, one instant would contradict the order of its row."""
    text = moment.isoformat(" ", "microseconds") + rest
    try:
        instant = dt.datetime.fromisoformat(values.zoned_text(text, zone))
    except ValueError:
        return
    expected = (instant.replace(tzinfo=None) - values.EPOCH) // dt.timedelta(microseconds=1)
    assert expected == values.instant_micros(text, zone)


@pytest.mark.parametrize(
    "text", ["1e+18446744073709551616", "-1E-99999999999999999999", "1e41", "0.5", "NaN"]
)
def test_what_is_no_integer_of_any_column(text: str):
    """A worker that stumbles over an exponent refuses the row for one cell."""
    with pytest.raises(ValueError, match="no integer"):
        rows.integer_text(text)


@pytest.mark.parametrize(("text", "expected"), [("1E3", "1000"), ("7.0", "7"), ("true", "1"), ("-0", "-0")])
def test_integers_in_other_words(text: str, expected: str):
    """An integer left as `1E3` is refused by the mirror's column."""
    assert expected == rows.integer_text(text)


_TEXTS = st.sampled_from(["1", "1E3", "x", "2024-05-01T08:20:17", "2024-05-01 08:20:17", "AAE=", None])
_IMAGES = st.none() | st.dictionaries(st.sampled_from("abcd"), _TEXTS)


@given(
    _IMAGES, _IMAGES, st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["int32", "datetime", "bit"]))
)
def test_two_images_at_once_become_what_each_becomes_alone(before, after, declared):
    """A text that was taken over from the image before would be another value of the row after."""
    plan = rows.plan({}, tuple(declared.items()), "UTC")
    alone = [dict(before) if before is not None else None, dict(after) if after is not None else None]
    failed = [column for image in alone for column in rows.convert(image, plan)]
    assert failed == rows.convert_both(before, after, plan)
    assert alone == [before, after]
