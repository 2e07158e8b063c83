"""Dates, times and instants as canonical text, from text and from counts."""

from __future__ import annotations

import datetime as dt
import re
from functools import lru_cache
from zoneinfo import ZoneInfo

from ingest.values.remembered import remembered

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - zone-less texts are counted from here
_EPOCH_DATE = dt.date(1970, 1, 1).toordinal()
MICROS = 1_000_000
_FIRST, _LAST = -62_135_596_800 * MICROS, 253_402_300_800 * MICROS - 1  # of the years 1 and 9999


def fraction(digits: str) -> str:
    """``.digits`` without trailing zeros, or nothing: the canonical fraction of a second."""
    digits = digits.rstrip("0")
    return "." + digits if digits else ""


def shortened(text: str) -> str:
    """A time's text without the zeros at the end of its fraction."""
    whole, _, digits = text.partition(".")
    return whole + fraction(digits)


def seconds_of(count: int, unit: int) -> tuple[int, str]:
    """The whole seconds of a count of ``unit`` ticks a second, and the canonical `fraction` of the rest."""
    seconds, rest = divmod(count, unit)
    return seconds, fraction(str(rest).rjust(len(str(unit)) - 1, "0"))


@lru_cache(maxsize=8192)
def _second_text(seconds: int) -> str:
    try:
        return (EPOCH + dt.timedelta(seconds=seconds)).isoformat(" ")
    except OverflowError:
        raise ValueError(f"{seconds} seconds lie outside the years 1 to 9999") from None


def datetime_text(count: int, unit: int) -> str:
    """A zone-less moment from a count since 1970; ``unit`` is the number of ticks in a second."""
    seconds, part = seconds_of(count, unit)
    return _second_text(seconds) + part


def timestamp_text(count: int, unit: int) -> str:
    """An instant from a count since 1970 UTC, as ``YYYY-MM-DDTHH:MM:SS[.f]Z``."""
    return datetime_text(count, unit).replace(" ", "T") + "Z"


def epoch_text(value: str) -> str:
    """An instant from ``seconds[.fraction]`` text (OMS and DRS write TIMESTAMP so)."""
    match = _EPOCH_NUMBER.fullmatch(value)
    if match is None:
        raise ValueError(f"{value[:40]!r} is not a count of seconds")
    sign, whole, digits = match.groups()
    digits = digits or ""
    seconds = int(whole)
    if sign:
        nanos = -(seconds * 10**9 + int(digits.ljust(9, "0")))
        return timestamp_text(nanos, 10**9)
    return _second_text(seconds).replace(" ", "T") + fraction(digits) + "Z"


_EPOCH_NUMBER = re.compile(r"(-)?([0-9]{1,12})(?:\.([0-9]{1,9}))?", re.ASCII)


def date_text(days: int) -> str:
    """A date from a count of days since 1970."""
    try:
        return dt.date.fromordinal(_EPOCH_DATE + days).isoformat()
    except (ValueError, OverflowError):
        raise ValueError(f"{days} days lie outside the years 1 to 9999") from None


def time_text(count: int, unit: int) -> str:
    """A time of day or span ``[-]HH:MM:SS[.f]`` from a count of ticks; hours may pass 24."""
    sign, count = ("-", -count) if count < 0 else ("", count)
    seconds, part = seconds_of(count, unit)
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{part}"


DATETIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:\.([0-9]{1,9}))?", re.ASCII
)
OFFSET = re.compile(r"(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)", re.ASCII)


def zoneless_text(value: str) -> str:
    """``YYYY-MM-DD HH:MM:SS[.f]`` from text with a space or a ``T`` and optional seconds."""
    match = DATETIME.fullmatch(value)
    if match is None:
        raise ValueError(f"{value[:40]!r} is not a date and time")
    return matched_text(match)


def matched_text(match: re.Match[str]) -> str:
    """The same from a match of `DATETIME`."""
    day, clock, digits = match.groups()
    return f"{day} {clock if len(clock) == 8 else clock + ':00'}{fraction(digits) if digits else ''}"


def zoned_text(value: str, zone: str) -> str:
    """An instant as ``...Z`` from text that carries an offset or zone name, else read in ``zone``.

    Args:
        value: ``YYYY-MM-DD HH:MM:SS[.f]`` with ``Z``, ``+08:00``, `` Asia/Shanghai`` or nothing.
        zone: the IANA zone for text without one.

    Raises:
        ValueError: also where clocks of the zone are changed, and the text is two instants, or none.
    """
    instant, digits = _instant(value, zone, sure=True)
    return instant.isoformat("T") + fraction(digits) + "Z"


def _instant(value: str, zone: str, *, sure: bool = False) -> tuple[dt.datetime, str]:
    """The second in UTC, and the digits of its fraction; ``sure`` refuses what is two instants, or none."""
    match = DATETIME.match(value)
    if match is None:
        raise ValueError(f"{value[:40]!r} is not a date and time")
    rest = value[match.end() :].strip()
    day, clock, digits = match.groups()
    local = dt.datetime.fromisoformat(f"{day} {clock}")
    if not rest:
        offset = zone_of(zone).utcoffset(local)
        if sure and offset != zone_of(zone).utcoffset(local.replace(fold=1)):
            raise ValueError(
                f"{value[:40]!r} is two instants in {zone}, or none: its clocks were changed then"
            )
    elif OFFSET.fullmatch(rest):
        offset = _offset(rest)
    else:
        offset = zone_of(rest).utcoffset(local)
    try:
        return (local - offset if offset else local), digits or ""
    except OverflowError:
        raise ValueError(f"{value[:40]!r} lies outside the years 1 to 9999") from None


def _offset(text_: str) -> dt.timedelta:
    if text_ == "Z":
        return dt.timedelta()
    digits = text_[1:].replace(":", "").ljust(4, "0")
    span = dt.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -span if text_[0] == "-" else span


@lru_cache(maxsize=256)
def zone_of(name: str) -> ZoneInfo:
    """An IANA zone, or `ValueError` with its name."""
    try:
        return ZoneInfo(name)
    except Exception:
        raise ValueError(f"{name[:40]!r} is not a time zone") from None


def micros_of(value: int | None, unit: int) -> int | None:
    """An event time in microseconds since 1970 UTC from a count in ``unit`` ticks a second.

    None stays None, and so is a time outside the years 1 to 9999: it was counted in other units.
    """
    if value is None or not _FIRST <= (micros := value * MICROS // unit) <= _LAST:
        return None
    return micros


def clock_of(count: int | None, unit: int) -> int | None:
    """The same of a message's clock, which says nothing where it is zero or below."""
    return micros_of(count, unit) if count and count > 0 else None


def wall_text(count: int, unit: int, zone: str) -> str:
    """The zone-less date and time that clocks in ``zone`` showed at an instant counted since 1970 UTC."""
    seconds, part = seconds_of(count, unit)
    try:
        local = (_EPOCH_UTC + dt.timedelta(seconds=seconds)).astimezone(zone_of(zone))
    except OverflowError:
        raise ValueError(f"{seconds} seconds lie outside the years 1 to 9999") from None
    return local.replace(tzinfo=None).isoformat(" ") + part


_EPOCH_UTC = EPOCH.replace(tzinfo=dt.UTC)
CUT_DIGITS = r":[0-9][0-9]\." + 6 * "[0-9]" + "[0-9]*[1-9]"
"""A pattern in a time's text: digits after the sixth of a second, which a mirror cuts."""


def instant_micros(value: str, zone: str) -> int:
    """Microseconds since 1970 UTC of text as in `zoned_text`; digits past the sixth are cut."""
    digits = value[20:]
    if value[16:20:3] == ":." and digits.isdecimal() and digits.isascii() and len(digits) <= 9:
        return _micros(value[:19], zone) + int(digits[:6].ljust(6, "0"))
    return _micros(value, zone)


@remembered(8192)
def _micros(value: str, zone: str) -> int:
    instant, digits = _instant(value, zone)
    span = instant - EPOCH
    return (span.days * 86400 + span.seconds) * MICROS + int(digits[:6].ljust(6, "0"))
