"""Which of a Kafka source's settings librdkafka can take over, and which it must leave to Java."""

from __future__ import annotations

import pytest

from ingest.bronze.kafka_settings import OnlyJavaError, native_settings, refused, why_java
from ingest.config.model import Source

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
LOGIN = f'{SCRAM} required username="ann" password="s3 cr=t";'
SASL = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": LOGIN}
AUTHORITY = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----"


def source(settings: dict[str, str]) -> Source:
    """A Kafka source with such settings."""
    return Source("far", "kafka", "canal", bootstrap_servers="one:9092", topics=("a",), kafka=settings)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        ({"fetch.max.bytes": "9", "max.poll.records": "7", "isolation.level": "read_uncommitted"},
         {"isolation.level": "read_uncommitted"}),
        (SASL, {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "ann",
                "sasl.password": "s3 cr=t"}),
        ({**SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN} required password='p' username='u' ;\n"},
         {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}),
        ({"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem",
          "ssl.endpoint.identification.algorithm": ""},
         {"security.protocol": "SSL", "ssl.ca.location": "/ca.pem", "ssl.endpoint.identification.algorithm": "none"}),
        ({"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.certificates": AUTHORITY,
          "ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/me.p12", "ssl.keystore.password": "k"},
         {"security.protocol": "SSL", "ssl.ca.pem": AUTHORITY, "ssl.keystore.location": "/me.p12",
          "ssl.keystore.password": "k"}),
    ],
)  # fmt: skip
def test_security_is_carried_over(settings: dict[str, str], expected: dict[str, str]) -> None:
    """Without its login or truststore the client would reach another cluster, or none."""
    usual = {"bootstrap.servers": "one:9092", "isolation.level": "read_committed"}
    assert usual | expected == native_settings(source(settings))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER"}, "sasl.mechanism"),
        ({**SASL, "sasl.jaas.config": LOGIN.replace(SCRAM, "com.example.Vault")}, "sasl.jaas.config"),
        ({**SASL, "sasl.jaas.config": LOGIN.replace(";", " tokenauth=true;")}, "sasl.jaas.config"),
        ({**SASL, "sasl.jaas.config": LOGIN.replace("s3", r"s\"3")}, "sasl.jaas.config"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": LOGIN}, "sasl.mechanism"),
        ({**SASL, "sasl.client.callback.handler.class": "com.example.Login"}, "sasl.client.callback.handler.class"),
        ({"security.protocol": "SSL"}, "truststore"),
        ({**SASL, "security.protocol": "SASL_SSL"}, "truststore"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/t.jks", "ssl.truststore.password": "t"},
         "ssl.truststore.location"),
        ({"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem",
          "ssl.keystore.location": "/k.jks"}, "ssl.keystore.location"),
        ({"ssl.protocol": "TLSv1.3"}, "ssl.protocol"),
        ({"security.providers": "com.example.Provider"}, "security.providers"),
    ],
)  # fmt: skip
def test_what_only_java_can_is_left_to_it(settings: dict[str, str], named: str) -> None:
    """A setting that is dropped silently would send a plain password, or trust another authority."""
    with pytest.raises(OnlyJavaError, match=named) as error:
        native_settings(source(settings))
    assert not [one for one in ("s3", "cr=t", "ann") if one in str(error.value)]


def test_a_missing_client_is_named_with_the_command_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each plan waits for Java, and the user does not know that it need not."""
    monkeypatch.setattr("ingest.bronze.kafka_settings.find_spec", lambda _name: None)
    assert "pip install 'ingest[kafka]'" in why_java(source({}))
    monkeypatch.setattr("ingest.bronze.kafka_settings.find_spec", lambda _name: "there")
    assert "" == why_java(source(SASL))
    assert "truststore" in why_java(source({"security.protocol": "SSL"}))


def test_a_refusal_shows_no_secret() -> None:
    """A client's own words may repeat the login."""
    text = str(refused(source(SASL), f"login failed: {LOGIN}"))
    assert "one:9092" in text
    assert "s3 cr=t" not in text
