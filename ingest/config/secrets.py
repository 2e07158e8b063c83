"""The secrets of a pipeline file, struck out of texts that others see."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote, urlsplit

from ingest.config.model import Pipeline, Source
from ingest.config.yaml_tree import SECRET


def struck(text: str, of: Source | Pipeline) -> str:
    """A text without the secrets of a source, or of a pipeline and all its sources."""
    secrets = _of_source(of) if isinstance(of, Source) else _of_pipeline(of)
    for secret in sorted(set(secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _of_pipeline(pipeline: Pipeline) -> Iterator[str]:
    yield from _of_settings(pipeline.spark)
    if pipeline.lineage and pipeline.lineage.api_key:
        yield pipeline.lineage.api_key
    if pipeline.catalog:
        yield from filter(None, (pipeline.catalog.token,))
        yield from _of_url(pipeline.catalog.uri)
    if pipeline.mask_secret:
        yield pipeline.mask_secret
    if pipeline.seal is not None:
        yield from filter(None, (pipeline.seal.master_key, pipeline.seal.previous_master_key))
    for target in pipeline.alerts:
        yield from filter(None, (target.webhook, urlsplit(target.webhook).path.strip("/")))
        yield from _of_url(target.smtp)
    for source in pipeline.sources:
        yield from _of_source(source)


def _of_source(source: Source) -> Iterator[str]:
    yield from _of_settings(source.kafka)
    yield from _of_settings(source.storage)
    yield from _of_url(source.registry)
    if source.database is not None:
        yield from filter(None, (source.database.password,))
        yield from _of_url(source.database.url)


def _of_url(url: str) -> Iterator[str]:
    if password := urlsplit(url).password:
        yield password
        yield unquote(password)


def _of_settings(settings: Mapping[str, str]) -> Iterator[str]:
    """Secret values, their lines, and what is in quotes inside them: JAAS names passwords so."""
    for name, value in settings.items():
        if SECRET.search(name) and value:
            yield str(value)
            yield from (line for line in str(value).splitlines() if len(line) > 20)  # of a PEM key
            yield from filter(None, re.findall(r"""["']([^"']+)["']""", str(value)))
