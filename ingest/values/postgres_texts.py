"""How PostgreSQL's types print values that may be written in several ways; each raises a `ValueError` for what is none."""

from __future__ import annotations

import ipaddress
import json
import re
from decimal import Decimal
from typing import Any


def jsonb(text: str) -> str:
    """Keys once and by their length, numbers as NUMERIC writes them, one blank after colons and commas."""
    return _json_text(json.loads(text, parse_float=Decimal, parse_int=Decimal, parse_constant=_refused))


def _refused(text: str) -> Any:
    raise ValueError(text)


def _json_text(value: Any) -> str:
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda member: (len(member[0].encode()), member[0].encode()))
        return "{" + ", ".join(f"{_json_text(name)}: {_json_text(each)}" for name, each in members) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json_text, value)) + "]"
    if isinstance(value, Decimal):
        return f"{value:f}" if value else f"{abs(value):f}"
    if isinstance(value, str) and re.search("[\ud800-\udfff\x00\x7f]", value):
        raise ValueError("a character that JSONB does not hold")
    return json.dumps(value, ensure_ascii=False)


def uuid(text: str) -> str:
    """Small hexadecimal digits in groups of 8, 4, 4, 4 and 12."""
    match = re.fullmatch(r"\{?((?:[0-9a-f]{4}-?){7}[0-9a-f]{4})\}?", text.strip().lower())
    if match is None or text.startswith("{") != text.endswith("}"):
        raise ValueError("no UUID")
    digits = match[1].replace("-", "")
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def inet(text: str) -> str:
    """An address with its network's bits, unless these are all."""
    interface = ipaddress.ip_interface(text.strip())
    plain = interface.network.prefixlen == interface.max_prefixlen
    return str(interface.ip) if plain else str(interface)


def inet_as_text(text: str) -> str:
    """What a cast to text gives, unlike the type's own form: always with the network's bits."""
    return str(ipaddress.ip_interface(text.strip()))


def cidr(text: str) -> str:
    """A network with its bits."""
    return str(ipaddress.ip_network(text.strip()))


def macaddr(text: str) -> str:
    """Six bytes with colons."""
    digits = re.sub(r"[:.\-]", "", text.strip().lower())
    if not re.fullmatch("[0-9a-f]{12}", digits):
        raise ValueError("no address")
    return ":".join(re.findall("..", digits))
