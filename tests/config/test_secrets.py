"""What a pipeline file holds in secret is shown nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.config import Pipeline, Source
from ingest.config.entries import AlertTarget, CatalogSettings, Database, Lineage
from ingest.config.secrets import struck
from ingest.config.yaml_tree import is_secret

KAFKA_PASSWORDS = [
    "ssl.key.password",
    "ssl.keystore.password",
    "ssl.truststore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.certificates",
    "sasl.jaas.config",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "listener.name.sasl_ssl.plain.sasl.jaas.config",
    "delegation.token.secret.key",
]
"""What Kafka itself declares as of type PASSWORD, and shows as [hidden]."""
OTHERS = [
    "basic.auth.user.info",
    "schema.registry.basic.auth.user.info",
    "bearer.auth.token",
    "fs.s3a.secret.key",
    "fs.s3a.session.token",
    "fs.s3a.encryption.key",
    "fs.azure.account.key.lake.dfs.core.windows.net",
    "fs.gs.auth.service.account.private.key",
    "AWS_ACCESS_KEY_ID",
]
HARMLESS = [
    "security.protocol",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "group.id",
    "sasl.mechanism",
    "path",
]


@pytest.mark.parametrize("name", KAFKA_PASSWORDS + OTHERS)
def test_secret_settings_are_known(name: str) -> None:
    """`validate --show` would print a private key."""
    assert is_secret(("sources", 0, "kafka", name), "x")


@pytest.mark.parametrize("name", HARMLESS)
def test_other_settings_are_shown(name: str) -> None:
    """People could not see what they have set."""
    assert not is_secret(("sources", 0, "kafka", name), "x")


@pytest.mark.parametrize("url", ["http://me:pw@host", "redis://:pw@host", "http://a:b:c@host/x"])
def test_addresses_with_a_password_are_secret(url: str) -> None:
    """An address is pasted into tickets."""
    assert is_secret(("sources", 0, "registry"), url)
    assert not is_secret(("sources", 0, "registry"), "http://host:8081/a@b")


def test_secrets_are_struck_out_of_texts() -> None:
    """A library's error would carry a password into the lineage service, the lake and the logs."""
    pem = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n-----END PRIVATE KEY-----"
    source = Source(
        "s", "kafka", "canal",
        kafka={"ssl.keystore.key": pem, "sasl.jaas.config": 'X required password="jaas-pw";', "group.id": "g"},
        storage={"secret": "store-pw"},
        registry="http://me:reg%40pw@host",
        database=Database("mysql://db", "me", "db-pw"),
    )  # fmt: skip
    pipeline = Pipeline(
        "p", Path("p.yaml"), "lake", (source,), spark={"spark.hadoop.fs.s3a.secret.key": "s3-pw"},
        lineage=Lineage(api_key="line-pw"),
        catalog=CatalogSettings("unity", "http://me:uri-pw@unity", token="unity-pw"),
        alerts=(AlertTarget("https://hooks/T0/x-pw"), AlertTarget(smtp="smtps://me:mail-pw@host")),
    )  # fmt: skip
    text = f"g: {pem} MIIEvQIBADANBgkqhkiG9w0BAQ jaas-pw store-pw reg@pw reg%40pw s3-pw line-pw db-pw T0/x-pw mail-pw unity-pw uri-pw"
    assert "g: " + " ".join(["***"] * 13) == struck(text, pipeline)
