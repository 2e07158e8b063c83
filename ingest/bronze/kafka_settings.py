"""A Kafka source's settings, as Java's client takes them and as librdkafka does, which needs no Java."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from importlib.util import find_spec

from ingest.config import Source
from ingest.config.secrets import struck
from ingest.errors import IngestError

_ISOLATION = "isolation.level"
_READ_COMMITTED = "read_committed"
EXTRA = "pip install 'ingest[kafka]'"


class BrokerError(IngestError):
    """The cluster cannot be queried; the text says which one, why, and what to check."""


class OnlyJavaError(Exception):
    """A setting that librdkafka does not have; the text names it, without its value."""


def client_settings(source: Source) -> dict[str, str]:
    """The source's Kafka settings with this product's defaults, secrets included."""
    return {
        "bootstrap.servers": source.bootstrap_servers,
        _ISOLATION: _READ_COMMITTED,
        **source.kafka,
    }


def reads_committed(source: Source) -> bool:
    """True unless the source reads messages of transactions that are still open."""
    return client_settings(source)[_ISOLATION] == _READ_COMMITTED


def topics_of(source: Source, listed: Collection[str]) -> list[str]:
    """The topics of the source among those that the cluster has."""
    if source.topics:
        return [topic for topic in source.topics if topic in listed]
    return sorted(topic for topic in listed if re.fullmatch(source.topic_pattern, topic))


def refused(source: Source, why: str) -> BrokerError:
    """The error of a cluster that does not answer, in one line and without the source's secrets."""
    why = struck(why, source)[:300].rstrip(".")
    return BrokerError(
        f"the brokers {source.bootstrap_servers} cannot be asked ({why}): "
        "nothing of this source was read; check bootstrap_servers: and kafka:."
    )


def why_java(source: Source) -> str:
    """Why only Spark's client can ask a source's brokers; empty if librdkafka can."""
    if find_spec("confluent_kafka") is None:
        return f"confluent-kafka is not installed: `{EXTRA}` brings it"
    try:
        native_settings(source)
    except OnlyJavaError as error:
        return str(error)
    return ""


def native_settings(source: Source) -> dict[str, str]:
    """The settings for librdkafka: servers, security and login; it has its own for all else.

    Raises:
        OnlyJavaError: one of them has no equal there.
    """
    given = client_settings(source)
    settings = {"bootstrap.servers": given["bootstrap.servers"], _ISOLATION: given[_ISOLATION]}
    for name, value in given.items():
        if name.startswith(("security.", "sasl.", "ssl.")):
            settings.update(_translated(name, value, given))
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    if protocol.endswith("SSL") and not settings.keys() & {"ssl.ca.location", "ssl.ca.pem"}:
        raise OnlyJavaError(f"security.protocol {protocol} without a truststore trusts what Java trusts")
    if protocol.startswith("SASL") and not settings.keys() >= {"sasl.username", "sasl.mechanism"}:
        raise OnlyJavaError(
            "the login is not a username and a password by sasl.mechanism and sasl.jaas.config"
        )
    return settings


def _translated(name: str, value: str, given: dict[str, str]) -> Iterator[tuple[str, str]]:
    match name:
        case "security.protocol":
            yield name, value.upper()
        case "sasl.mechanism" if value in _BY_PASSWORD:
            yield name, value
        case "sasl.jaas.config" if match := _LOGIN.fullmatch(value.strip()):
            options = dict(_OPTION.findall(match[1]))
            if options.keys() != {"username", "password"} or _OPTION.sub("", match[1]).strip():
                raise OnlyJavaError("sasl.jaas.config has more than username and password in quotes")
            for option, text in options.items():
                yield f"sasl.{option}", text
        case "ssl.endpoint.identification.algorithm":
            yield name, value or "none"
        case "ssl.truststore.location" if given.get("ssl.truststore.type", "").upper() == "PEM":
            yield "ssl.ca.location", value
        case "ssl.keystore.location" if given.get("ssl.keystore.type", "").upper() == "PKCS12":
            yield name, value
        case "ssl.keystore.password" | "ssl.key.password":
            yield name, value
        case "ssl.truststore.certificates" | "ssl.keystore.certificate.chain" | "ssl.keystore.key":
            yield _PEM[name], value
        case "ssl.truststore.type" | "ssl.keystore.type" | "ssl.truststore.password":
            return  # said with the store itself
        case _:
            raise OnlyJavaError(f"the value of {name} has no equal without Java")


_BY_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_PEM = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_LOGIN = re.compile(
    r"org\.apache\.kafka\.common\.security\.(?:plain\.PlainLoginModule|scram\.ScramLoginModule)\s+required\s+"
    r"([^;]*?)\s*;",
    re.DOTALL,
)
_OPTION = re.compile(r"""\b(\w++)\s*+=\s*+["']([^"'\\]*+)["']""")
