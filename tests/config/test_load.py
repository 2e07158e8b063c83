"""A pipeline file becomes a `Pipeline`, or every one of its faults with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.change import TableHints, TableId
from ingest.config import Expectation, Pipeline, QualityRule, Source, TableRule, load
from ingest.config.masks import Masks
from ingest.errors import ConfigError

GOOD = """\
pipeline: stock
lake: ./lake
sources:
  - name: bins
    kind: files
    path: ../in/*.jsonl
    format: canal
"""


def written(folder: Path, text: str, name: str = "stock.yaml") -> Path:
    """A pipeline file with that text."""
    file = folder / name
    file.write_text(text, "utf-8")
    return file


def loaded(folder: Path, more: str = "", text: str = GOOD) -> Pipeline:
    """The pipeline of a good file with more keys behind it."""
    return load(written(folder, text + more))


def problems(folder: Path, text: str) -> list[str]:
    """The faults of a file, each without the file's path."""
    file = written(folder, text)
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert caught.value.exit_code == 2
    return [problem.removeprefix(f"{file}:") for problem in caught.value.problems]


# --- what a good file means ---------------------------------------------------------------------


def test_paths_are_taken_from_the_files_own_folder(tmp_path: Path) -> None:
    """Run from another folder, a pipeline would read and write elsewhere."""
    pipeline = loaded(tmp_path)
    assert str(tmp_path / "lake") == pipeline.lake
    assert str(tmp_path.parent / "in/*.jsonl") == pipeline.sources[0].path
    assert tmp_path / "stock.yaml" == pipeline.file


def test_a_change_feed_needs_a_file_system(tmp_path: Path) -> None:
    """In a store the first run would fail after the mirror's commit."""
    rule = "tables: [{changes_of: true}]\n"
    assert loaded(tmp_path, text=GOOD.replace("./lake", "file:///srv/lake") + rule).tables[0].changes_of
    with pytest.raises(
        ConfigError, match=r"changes_of: needs a lake in a file system, and this one is in a store"
    ):
        loaded(tmp_path, text=GOOD.replace("./lake", "s3a://bucket/lake") + rule)


@pytest.mark.parametrize("uri", ["s3a://bucket/lake", "file:///srv/lake", "oss://b/l", "abfss://c@a.net/l"])
def test_uris_stay_as_they_are(tmp_path: Path, uri: str) -> None:
    """A bucket would become a folder named after it."""
    assert uri == loaded(tmp_path, text=GOOD.replace("./lake", uri)).lake


def test_a_lake_given_as_a_file_uri_is_not_taken_for_a_path(tmp_path: Path) -> None:
    """Java writes file:/x for file:///x; what asks for :// would make a folder named file: and find no table there."""
    assert "file:///srv/lake" == loaded(tmp_path, text=GOOD.replace("./lake", "file:/srv/lake")).lake


def test_defaults_are_the_documented_ones(tmp_path: Path) -> None:
    """A changed default changes what every short file means."""
    source = loaded(tmp_path).sources[0]
    expected = Source(name="bins", kind="files", format="canal", path=source.path)
    assert expected == source


def test_every_source_key_is_read(tmp_path: Path) -> None:
    """A key that is accepted and forgotten is worse than an unknown one."""
    more = (
        "    framing: document\n    settle: 2m\n    order_files_by: mtime\n    max_record_bytes: 10MiB\n"
        "    max_messages: 1_000\n    max_bytes: 1GB\n    storage: {endpoint: 'http://x', retries: 3}\n"
    )
    source = loaded(tmp_path, more).sources[0]
    assert ("document", 120.0, "mtime", 10 * 2**20) == (
        source.framing,
        source.settle,
        source.order_files_by,
        source.max_record_bytes,
    )
    assert (1000, 10**9) == (source.max_messages, source.max_bytes)
    assert {"endpoint": "http://x", "retries": "3"} == source.storage


def test_options_are_read(tmp_path: Path) -> None:
    """Options decide what values mean."""
    more = (
        "    options: {timezone: Asia/Shanghai, binary: hex, swap_old_data: true, key_is_full: false,\n"
        "      decimal_scale: 0, order_by: arrival, table: {bins-*: w.bin, other: '`a.b`.s.t'}}\n"
    )
    options = loaded(tmp_path, more).sources[0].options
    assert ("Asia/Shanghai", "hex", True, False, 0, "arrival") == (
        options.timezone,
        options.binary,
        options.swap_old_data,
        options.key_is_full,
        options.decimal_scale,
        options.order_by,
    )
    assert (("bins-*", TableId("w", None, "bin")), ("other", TableId("a.b", "s", "t"))) == options.table


def test_one_table_stands_for_all_topics(tmp_path: Path) -> None:
    """Messages that name no table would find none."""
    options = loaded(tmp_path, "    options: {table: w.s.bin}\n").sources[0].options
    assert (("*", TableId("w", "s", "bin")),) == options.table


def test_rules_are_read_and_the_first_that_matches_applies(tmp_path: Path) -> None:
    """Keys and types of the wrong rule would build a wrong mirror."""
    more = (
        "tables:\n  - {match: w.bin, keys: [no, on], columns: {at: datetime(6), n: 'decimal(38,10)'},\n"
        "     no_key: append, on_schema_change: freeze, change_feed: true}\n"
        "  - {match: w.*, into: 'all.{table}', exclude: false}\n"
    )
    pipeline = loaded(tmp_path, more)
    expected = TableRule(
        match="w.bin",
        keys=("no", "on"),
        columns={"at": "datetime(6)", "n": "decimal(38,10)"},
        no_key="append",
        on_schema_change="freeze",
        change_feed=True,
    )
    assert expected == pipeline.rule(TableId("w", None, "bin"))
    assert "all.{table}" == pipeline.rule(TableId("w", None, "other")).into
    hints = pipeline.hints(pipeline.sources[0])
    assert TableHints(("no", "on"), expected.columns) == hints.tables(TableId("w", None, "bin"))


def test_rules_for_columns_are_taken_apart(tmp_path: Path) -> None:
    """A parser must see the types alone; the place of each rule is needed where it cannot be followed."""
    more = (
        "tables:\n  - match: w.bin\n    columns:\n      '*_at': exclude\n      made_at: include\n"
        "      n: {rename: number, type: 'decimal(38,10)'}\n      v: int64\n      w: exclude\n"
    )
    rule = loaded(tmp_path, more).rule(TableId("w", None, "bin"))
    assert ({"n": "decimal(38,10)", "v": "int64"}, {"n": "number"}) == (rule.columns, rule.names)
    kept = [name for name in ("n", "v", "w", "made_at", "seen_at", "other") if not rule.leaves_out(name)]
    assert ["n", "v", "made_at", "other"] == kept
    assert rule.places["n"].endswith(":13:7")


def test_a_type_alone_leaves_the_mirror_as_it_is(tmp_path: Path) -> None:
    """A lake that stands would be folded again for nothing."""
    rule = loaded(tmp_path, "tables: [{match: w.bin, columns: {v: int64}}]\n").rule(TableId("w", None, "bin"))
    assert ("", TableRule(match="w.bin", columns={"v": "int64"})) == (rule.shape, rule)


def test_quality_keeps_real_numbers_for_expectations_only(tmp_path: Path) -> None:
    """Great Expectations compares numbers; a text 0.95 would fail every check."""
    more = (
        "quality:\n  - table: w.bin\n    freshness: 2h\n    thresholds: {reject_rate: 0.1%, gaps: 3}\n    expect:\n"
        "      - {type: expect_column_values_to_be_between, column: 5x, min_value: 1, max_value: 2.5,\n"
        "         strict_max: true, notes: [1, a], severity: warn}\n"
    )
    arguments = {"column": "5x", "min_value": 1, "max_value": 2.5, "strict_max": True, "notes": [1, "a"]}
    expectation = Expectation("expect_column_values_to_be_between", arguments, "warn")
    expected = QualityRule("w.bin", (expectation,), 7200.0, {"reject_rate": 0.001, "gaps": 3.0})
    assert (expected,) == loaded(tmp_path, more).quality


def test_spark_settings_keep_their_text(tmp_path: Path) -> None:
    """1.10 passed through a number would become 1.1."""
    more = "spark: {spark.a: 1.10, spark.b: true, spark.c: 0x10}\nmaster: local[2]\nplain_tables: true\n"
    pipeline = loaded(tmp_path, more)
    assert {"spark.a": "1.10", "spark.b": "true", "spark.c": "0x10"} == pipeline.spark
    assert ("local[2]", True) == (pipeline.master, pipeline.plain_tables)


KAFKA = """\
pipeline: stock
lake: lake
sources:
  - name: bins
    kind: kafka
    format: canal
    bootstrap_servers: [a:9092, b:9092]
"""


def test_kafka_sources_are_read(tmp_path: Path) -> None:
    """Settings of the broker would be lost."""
    more = (
        "    topics: [bins, moves]\n    registry: http://r:8081\n    max_messages: 5\n"
        "    kafka: {security.protocol: SSL, kafka.retries: 3}\n"
    )
    source = loaded(tmp_path, more, KAFKA).sources[0]
    assert ("kafka", "a:9092,b:9092", ("bins", "moves")) == (
        source.kind,
        source.bootstrap_servers,
        source.topics,
    )
    assert {"security.protocol": "SSL", "retries": "3"} == source.kafka
    assert ("http://r:8081", 5, "earliest") == (source.registry, source.max_messages, source.start)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("latest", "latest"),
        ("2024-05-01T08:00:00+08:00", "2024-05-01T00:00:00Z"),
        ("2024-05-01 00:00:00", "2024-05-01T00:00:00Z"),
        ("{bins: {0: 12, 1: 0}}", {"bins": {0: 12, 1: 0}}),
    ],
)
def test_kafka_starts(tmp_path: Path, start: str, expected: object) -> None:
    """Reading from a wrong place loses messages or repeats them."""
    source = loaded(tmp_path, f"    topic_pattern: b.*\n    start: {start}\n", KAFKA).sources[0]
    assert expected == source.start


def test_json_is_accepted(tmp_path: Path) -> None:
    """JSON is YAML, tabs and escapes included."""
    text = (
        '{\n\t"pipeline": "stock",\n\t"lake": "l\\ud83d\\ude00",\n\t"sources": [{"name": "b", "kind": "files",'
        ' "path": "\\/x", "format": "canal", "options": {"swap_old_data": true}}]\n}'
    )
    pipeline = loaded(tmp_path, text=text)
    assert str(tmp_path / "l\U0001f600") == pipeline.lake
    assert ("/x", True) == (pipeline.sources[0].path, pipeline.sources[0].options.swap_old_data)


def test_a_source_without_kind_is_of_the_kind_of_its_keys(tmp_path: Path) -> None:
    """The short form would be refused."""
    assert "files" == loaded(tmp_path, text=GOOD.replace("    kind: files\n", "")).sources[0].kind
    kafka = KAFKA.replace("    kind: kafka\n", "") + "    topics: t\n"
    assert "kafka" == loaded(tmp_path, text=kafka).sources[0].kind


def test_aliases_and_merges_work(tmp_path: Path) -> None:
    """Shared options would have to be written twice."""
    more = (
        "    options: &zone {timezone: Asia/Tokyo}\n  - {name: two, path: x, format: canal, options: *zone}\n"
        "  - {name: three, path: x, format: canal, options: {<<: *zone, binary: hex}}\n"
    )
    sources = loaded(tmp_path, more).sources
    assert ["Asia/Tokyo"] * 3 == [source.options.timezone for source in sources]
    assert "hex" == sources[2].options.binary


def test_a_key_without_a_value_is_as_if_it_were_not_there(tmp_path: Path) -> None:
    """A list whose entries are all commented out would be refused."""
    pipeline = loaded(tmp_path, "    options:\ntables:\n  # - match: x\nquality:\nmaster:\n")
    assert ((), (), "") == (pipeline.tables, pipeline.quality, pipeline.master)


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    """Editors on Windows write one."""
    assert "stock" == loaded(tmp_path, text="\ufeff" + GOOD).name


# --- references ---------------------------------------------------------------------------------


def test_references_are_resolved_after_parsing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value from outside could otherwise add keys to the file."""
    monkeypatch.setenv("STOCK_LAKE", "x: [y\nsources: none")
    monkeypatch.delenv("STOCK_NONE", raising=False)
    (tmp_path / "servers").write_text("b1:9092\n", "utf-8")
    text = KAFKA.replace("lake: lake", "lake: s3a://${STOCK_LAKE}/${STOCK_NONE:-d}").replace(
        "[a:9092, b:9092]", "${file:servers}"
    )
    pipeline = loaded(tmp_path, "    topics: $${t}\n    kafka: {x: 5$, y: '$$'}\n", text)
    assert "s3a://x: [y\nsources: none/d" == pipeline.lake
    source = pipeline.sources[0]
    assert ("b1:9092", ("${t}",)) == (source.bootstrap_servers, source.topics)
    assert {"x": "5$", "y": "$$"} == source.kafka


def test_numbers_may_come_from_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits are what differs between machines."""
    monkeypatch.setenv("STOCK_MAX", "250")
    assert 250 == loaded(tmp_path, "    max_messages: ${STOCK_MAX}\n").sources[0].max_messages


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            "${STOCK_NONE}",
            "2:1 the environment variable STOCK_NONE is not set; set it or write ${STOCK_NONE:-default}",
        ),
        (
            "${file:nope}",
            "2:1 the file {folder}/nope of ${file:...} cannot be read: No such file or directory",
        ),
        (
            "${file:/dev/zero}",
            "2:1 the file /dev/zero of ${file:...} cannot be read: it is not a regular file",
        ),
        ("${a-b}", "2:1 ${a-b} is not a reference; write ${NAME}, ${NAME:-default} or ${file:/path}"),
    ],
)
def test_references_that_lead_nowhere(tmp_path: Path, value: str, expected: str) -> None:
    """An empty lake path would put the lake into the pipeline's folder."""
    found = problems(tmp_path, GOOD.replace("./lake", value))
    assert [expected.replace("{folder}", str(tmp_path))] == found


FULL = """\
pipeline: stock
lake: ./lake
mask_secret: ${STOCK_NONE}
alerts: [{webhook: "${STOCK_NONE}"}, {webhook: "https://hooks.example.com/x"}]
openlineage: {url: "http://marquez:5000", api_key: "${STOCK_NONE}"}
bronze: {seal: {master_key: "${STOCK_NONE}"}}
spark: {spark.hadoop.fs.s3a.secret.key: "${STOCK_NONE}", spark.ui.enabled: "false"}
sources:
  - name: bins
    format: canal
    bootstrap_servers: ["${STOCK_NONE}"]
    topics: ["${STOCK_NONE}"]
    start: ${STOCK_NONE}
    kafka: {sasl.jaas.config: "${file:nope}", security.protocol: SASL_SSL}
    database: {url: "mysql://db:3306", user: reader, password: "${STOCK_NONE}"}
  - {name: boxes, format: canal, path: "${STOCK_NONE}/*.jsonl", storage: {secret: "${STOCK_NONE}"}}
tables:
  - {match: stock.bins, mask: {phone: hmac}}
"""


def test_what_only_runs_need_is_left_out_for_questions(tmp_path: Path) -> None:
    """The operator who asks for the state of a lake at night does not have the broker's password."""
    file = written(tmp_path, FULL)
    with pytest.raises(ConfigError, match="STOCK_NONE"):
        load(file)
    found = load(file, to_look=True)
    bins, boxes = found.sources
    assert {"security.protocol": "SASL_SSL"} == bins.kafka
    assert (None, "${STOCK_NONE}", ("${STOCK_NONE}",)) == (bins.database, bins.bootstrap_servers, bins.topics)
    assert {} == boxes.storage
    assert ((), None, "", {"spark.ui.enabled": "false"}) == (
        found.alerts,
        found.lineage,
        found.mask_secret,
        found.spark,
    )
    assert found.hides, "sealed and masked data must still not be quoted"
    assert {
        "alerts", "bronze.seal", "mask_secret", "openlineage", "sources.0.bootstrap_servers.0", "sources.0.database",
        "sources.0.kafka.sasl.jaas.config", "sources.0.start", "sources.0.topics.0", "sources.1.path",
        "sources.1.storage.secret", "spark.spark.hadoop.fs.s3a.secret.key",
    } == set(found.unresolved)  # fmt: skip
    assert all(text.startswith(f"{file}:") for text in found.unresolved.values())
    with pytest.raises(ConfigError, match="3:1 the environment variable STOCK_NONE is not set"):
        Masks(found).of(TableId("stock", None, "bins"))
    assert Masks(found).of(TableId("stock", None, "boxes")) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("lake: ./lake", "lake: ${STOCK_NONE}"),
        ("pipeline: stock", "pipeline: ${STOCK_NONE}"),
        ("match: stock.bins", "match: '${STOCK_NONE}'"),
        ("lake: ./lake", "lake: s3a://stock/lake"),
        ("format: canal, path", "format: '${STOCK_NONE}', path"),
        ("mask_secret: ${STOCK_NONE}", ""),
        ("mask_secret: ${STOCK_NONE}", "mask_secret: short"),
        ('[{webhook: "${STOCK_NONE}"}', '[{webhook: "${not a name}"}'),
    ],
)
def test_what_questions_need_is_needed_for_them(tmp_path: Path, old: str, new: str) -> None:
    """Without the lake's own keys an answer would be about another lake, or wrong."""
    assert old in FULL
    with pytest.raises(ConfigError):
        load(written(tmp_path, FULL.replace(old, new)), to_look=True)


def test_faults_of_references_do_not_print_their_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret put into the wrong key would reach a log."""
    monkeypatch.setenv("STOCK_SECRET", "hunter2")
    found = problems(tmp_path, GOOD + "    settle: ${STOCK_SECRET}\n    storage: {password: [hunter2]}\n")
    assert not [text for text in found if "hunter2" in text]
    assert "8:5 ${STOCK_SECRET} does not resolve to a usable value of settle" == found[0]


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ": is empty; `ingest init {file} --force` writes a starter"),
        ("# only words\n", ": holds only comments; `ingest init {file} --force` writes a starter"),
        ("- a\n", "1:1 the file holds a list; it must hold keys such as pipeline: and sources:"),
        ("words", "1:1 the file holds a single value; it must hold keys such as pipeline: and sources:"),
        ("a: [1\nb: 2\n", "2:2 is not YAML: while parsing a flow sequence: expected ',' or ']', but got ':'"),
        ("a:\n\t- b\n", "2:1 a tab is where YAML wants spaces; indent with spaces"),
        ("a: 1\n---\nb: 2\n", "2:1 a second document starts here; keep one pipeline in one file"),
        ("a: *b\n", "1:4 is not YAML: found undefined alias 'b'"),
        ("a: &a [*a]\n", "1:1 the file is too large or nested too deeply (an alias that holds itself?)"),
    ],
)
def test_files_that_are_no_pipeline(tmp_path: Path, text: str, expected: str) -> None:
    """A person would get a traceback instead of one sentence."""
    assert [expected.replace("{file}", str(tmp_path / "stock.yaml")).lstrip(":")] == problems(tmp_path, text)


def test_an_alias_bomb_is_refused(tmp_path: Path) -> None:
    """A few lines of nested aliases would fill the memory."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert "too large" in problems(tmp_path, "\n".join(lines))[0]


def test_missing_files_folders_and_other_encodings(tmp_path: Path) -> None:
    """Each common slip has its own sentence."""
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"pipeline: x\nlake: caf\xe9\n")
    for file, expected in [
        (
            tmp_path / "none.yaml",
            f"{tmp_path}/none.yaml: there is no such file; `ingest init {tmp_path}/none.yaml` writes one",
        ),
        (tmp_path, f"{tmp_path}: is a folder; name the pipeline file in it"),
        (latin, f"{latin}:2:10 is not UTF-8 text; save the file as UTF-8"),
    ]:
        with pytest.raises(ConfigError) as caught:
            load(file)
        assert [expected] == caught.value.problems


BAD_KEYS = [
    ("    formt: x\n", "8:5 the key 'formt' is unknown here; did you mean format?"),
    ("    topics: [a]\n", "8:5 the key 'topics' belongs to a source of kind kafka, not files"),
    ("    framing: line\n", "8:5 'line' is not one of lines, document, length, avro-container or raw; did you mean lines?"),
    ("    settle: soon\n", "8:5 'soon' is not a duration; write for example 60s, 5m, 2h or 1d"),
    ("    max_bytes: 5 apples\n", "8:5 '5 apples' is not a size; write for example 64MiB, 500KB or 1GiB"),
    ("    max_messages: -1\n", "8:5 '-1' is not a positive whole number"),
    ("    max_messages: 1.5\n", "8:5 '1.5' is not a positive whole number"),
    ("    storage: [a]\n", "8:5 a map of settings belongs here, such as {key: value}, not a list"),
    ("    options: {timezone: Asia/Shangai}\n", "8:15 'Asia/Shangai' is not a time zone; did you mean Asia/Shanghai or Asia/Khandyga?"),
    ("    options: {binary: base46}\n", "8:15 'base46' is not one of base64, hex, base16, iso8859-1, int-list or utf8; did you mean base64 or base16?"),
    ("    options: {swap_old: true}\n", "8:15 the option 'swap_old' is unknown; did you mean swap_old_data?"),
    ("    options: {swap_old_data: yes}\n", "8:15 'yes' is neither true nor false"),
    ("    options: {table: bin}\n", "8:15 'bin' is not a table; write database.table or database.schema.table"),
    ("    options: {table: {t: a.b.c.d}}\n", "8:15 'a.b.c.d' is not a table; write database.table or database.schema.table"),
    ("    options: {decimal_scale: x}\n", "8:15 'x' is not a positive whole number"),
    ("    options: 5\n", "8:5 a mapping of keys belongs here"),
    ("    path: again\n", "8:5 the key 'path' is here a second time; keep one"),
    ("    storage: !secret x\n", "8:14 the tag !secret is not allowed; write the plain value"),
    ("    ? [a]\n    : b\n", "8:7 a key must be plain text, not a list or a mapping"),
    ("  - {name: bins, path: x, format: canal}\n", "8:6 the source 'bins' is in line 4 already; use another name"),
    ("  - {name: b 2, path: x, format: canal}\n", "8:6 'b 2' is not a name; use letters, digits, _, - and . only"),
    ("  - {name: b, path: x, format: cannal}\n", "8:24 'cannal' is not a format; did you mean canal or oms-canal?"),
    ("  - {name: b, path: x, format: canal, kind: file}\n", "8:39 kind: 'file' is not one of files or kafka; did you mean files?"),
    ("  - {name: b, format: canal}\n", "8:5 the key 'path' is missing"),
    ("  - five\n", "8:5 a mapping of keys belongs here"),
    ("tables: {match: x}\n", "8:1 tables must be a list; start each entry with a dash"),
    ("tables: [{keys: {a: b}}]\n", "8:11 a list of texts belongs here, such as [a, b], not a mapping"),
    ("tables: [{keys: [a, a]}]\n", "8:11 'a' is in the list twice"),
    ("tables: [{columns: {a: int}}]\n", "8:21 'int' is not a type; did you mean int32?"),
    ("tables: [{columns: {a: timestamp_ntz}}]\n", "8:21 'timestamp_ntz' is not a type; did you mean datetime?"),
    ("tables: [{columns: {a: VARCHAR2(9)}}]\n", "8:21 'VARCHAR2(9)' is not a type; did you mean string?"),
    ("tables: [{columns: {a: 'decimal(5,9)'}}]\n", "8:21 'decimal(5,9)' is not a type; did you mean decimal(9,9)?"),
    ("tables: [{columns: {a: bolean}}]\n", "8:21 'bolean' is not a type; did you mean boolean?"),
    ("tables: [{columns: {a: {renam: b}}}]\n", "8:21 the key 'renam' is unknown here; did you mean rename?"),
    ("tables: [{columns: {a: {rename: b c}}}]\n", "8:21 'b c' is not a name of a column; write letters, digits and _"),
    ("tables: [{columns: {a: []}}]\n", "8:21 write a type, exclude, include, or {type: ..., rename: ...}, not a list"),
    ("tables: [{columns: {a: {}}}]\n", "8:21 write a type, exclude, include, or {type: ..., rename: ...}, not a mapping"),
    ("tables: [{columns: {a: exclud}}]\n", "8:21 'exclud' is not a type; did you mean exclude or include?"),
    ("tables: [{columns: {a: {rename: c}, b: {rename: c}}}]\n", "8:10 columns: renames two columns to 'c'"),
    ("tables: [{columns: {'a*': int64}}]\n", "8:10 columns: 'a*' is a pattern, and patterns can only be excluded"),
    ("tables: [{keys: id, columns: {id: exclude}}]\n", "8:10 columns: leaves out 'id', which is a column of the key"),
    ("tables: [{no_key: full_row, columns: {a: exclude}}]\n", "8:10 with no_key: full_row every column tells rows apart, and none can be excluded"),
    ("tables: [{history: true, columns: {a: {rename: b}}}]\n", "8:10 with history: true every column stays as it is; exclude and rename none"),
    ("tables: [{where: 'a = '}]\n", "8:11 'a = ' is not an SQL condition: it breaks off, at its character 3"),
    ("tables: [{where: 'now() > a'}]\n", "8:11 'NOW()' cannot stand in a condition: write comparisons of the row's own columns, with AND, OR, NOT, IN, BETWEEN, LIKE, CASE, CAST, coalesce, lower, upper, length, trim, substring, round, year, month, day, || and arithmetic"),
    ("tables: [{where: 'o.a = 1'}]\n", "8:11 'o.a' names a table: write the column alone"),
    ("tables: [{where: '1 = 1'}]\n", "8:11 '1 = 1' names no column, so that it holds for every row or for none"),
    ("tables: [{where: a = 1, no_key: append}]\n", "8:10 where: needs rows with a key, and no_key: append is for rows without"),
    ("tables: [{where: a = 1, history: true}]\n", "8:10 where: and history: true cannot be in one entry: old states are kept of all rows"),
    ("tables: [{where: a = 1, columns: {a: exclude}}]\n", "8:10 where: needs the column 'a', which columns: excludes"),
    ("tables: [{where: a = 1, mask: {a: last4}}]\n", "8:10 where: needs the column 'a', of which mask: leaves no value to compare"),
    ("tables: [{cluster_by: a, columns: {a: exclude}}]\n", "8:10 cluster_by: needs the column 'a', which columns: excludes"),
    ("tables: [{cluster_by: [a, b, c, d, e]}]\n", "8:10 cluster_by: names 5 columns; files are ordered by at most 4"),
    ("tables: [{cluster_by: [a, b, a]}]\n", "8:11 'a' is in the list twice"),
    ("tables: [{columns: {t: {compute: a *}}}]\n", "8:21 'a *' is not an SQL expression: it breaks off, at its character 3"),
    ("tables: [{columns: {t: {compute: random() * a}}}]\n", "8:21 'RANDOM()' cannot stand in an expression: write comparisons of the row's own columns, with AND, OR, NOT, IN, BETWEEN, LIKE, CASE, CAST, coalesce, lower, upper, length, trim, substring, round, year, month, day, || and arithmetic"),
    ("tables: [{columns: {t: {compute: 1 + 1}}}]\n", "8:21 '1 + 1' names no column, so that its value is the same in every row: write `constant:` instead of `compute:`"),
    ("tables: [{columns: {t: {compute: a, rename: b}}}]\n", "8:21 compute and rename cannot be in one rule"),
    ("tables: [{columns: {t: {meta: batch, type: string}}}]\n", "8:21 meta and type cannot be in one rule"),
    ("tables: [{columns: {t: {constant: x, meta: batch}}}]\n", "8:21 constant and meta cannot be in one rule"),
    ("tables: [{columns: {t: {meta: bacth}}}]\n", "8:21 'bacth' is not one of source, table, batch, event_time or operation; did you mean batch?"),
    ("tables: [{columns: {t: {constant: x, type: int32}}}]\n", "8:21 'x' is not a value of int32, in the form of messages"),
    ("tables: [{columns: {t: {compute: a}}, no_key: append}]\n", "8:10 columns: 't' needs rows with a key, and no_key: append is for rows without"),
    ("tables: [{columns: {t: {meta: batch}}, history: true}]\n", "8:10 columns: 't' and history: true cannot be in one entry"),
    ("tables: [{changes_of: true, no_key: append}]\n", "8:10 changes_of: needs rows with a key, and no_key: append is for rows without"),
    ("tables: [{deletes: sotf}]\n", "8:11 'sotf' is not one of remove or soft; did you mean soft?"),
    ("tables: [{deletes: soft, no_key: full_row}]\n", "8:10 deletes: soft needs rows with a key, and no_key: full_row is for rows without"),
    ("tables: [{deletes: soft, history: true}]\n", "8:10 deletes: soft and history: true cannot be in one entry"),
    ("tables: [{deletes: soft, where: a = 1}]\n", "8:10 where: and deletes: soft cannot be in one entry: a row that no longer meets the condition is not deleted"),
    ("tables: [{deletes: soft, columns: {_deleted: exclude}}]\n", "8:10 columns: '_deleted' is made by deletes: soft already"),
    ("tables: [{deletes: soft, columns: {t: {compute: '_deleted OR a = 1'}}}]\n", "8:10 columns: 't' needs the column '_deleted', which is made by a rule: write its expression"),
    ("tables: [{columns: {t: {deletes: soft}}}]\n", "8:21 the key 'deletes' is unknown here"),
    ("tables: [{columns: {t: {meta: batch}}, keys: t}]\n", "8:10 columns: 't' is made by its rule, so it cannot tell rows apart"),
    ("tables: [{columns: {t: {meta: batch}, a: {rename: t}}}]\n", "8:10 columns: 't' is made by its rule, and another column is renamed to it"),
    ("tables: [{columns: {t: {compute: a}, a: exclude}}]\n", "8:10 columns: 't' needs the column 'a', which columns: excludes"),
    ("tables: [{columns: {t: {compute: a}}, mask: {a: last4}}]\n", "8:10 columns: 't' needs the column 'a', of which mask: leaves no value to compare"),
    ("tables: [{columns: {t: {compute: u}, u: {meta: batch}}}]\n", "8:10 columns: 't' needs the column 'u', which is made by a rule: write its expression"),
    ("tables: [{where: t > 1, columns: {t: {meta: batch}}}]\n", "8:10 where: needs the column 't', which is made by a rule: write its expression"),
    ("tables: [{columns: {'t*': {meta: batch}}}]\n", "8:10 columns: 't*' is a pattern, and patterns can only be excluded"),
    ("tables: [{columns: {'a b': {meta: batch}}}]\n", "8:10 'a b' is not a name of a column; write letters, digits and _"),
    ("tables: [{match: a..b}]\n", "8:11 'a..b' matches no table; write database.table, with * for any part"),
    ("tables: [{match: a.b, into: 'x.{tabel}'}]\n", "8:23 {tabel} is not a placeholder; did you mean table or database?; there are {database}, {schema} or {table}"),
    ("tables: [{match: a.b, into: 'x.{table'}]\n", "8:23 'x.{table' has a brace without its partner"),
    ("tables: [{on_schema_change: evolv}]\n", "8:11 'evolv' is not one of lenient, evolve, freeze or ignore; did you mean evolve?"),
    ("quality: [{table: a.b, expect: [{type: expect_column_values_to_not_be_null, colum: x}]}]\n",
     "8:33 expect_column_values_to_not_be_null takes no colum; did you mean column?"),
    ("quality: [{table: a.b, expect: [{type: expect_column_values_to_not_be_null}]}]\n",
     "8:33 expect_column_values_to_not_be_null needs column"),
    ("quality: [{table: a.b, expect: [{type: not_null}]}]\n", "8:34 'not_null' is not an expectation; write a name such as expect_column_values_to_be_unique"),
    ("quality: [{table: a.b, thresholds: {gaps: many}}]\n", "8:37 'many' is not a threshold; write for example 0.1% or 5"),
    ("quality: [{table: a.b, thresholds: {row_cuont: 3}}]\n", "8:24 there is no check 'row_cuont'; did you mean row_count?"),
    ("every: 100ms\n", "8:1 runs follow each other by at least 1s; write for example 30s or 5m"),
    ("horizon_days: 0\n", "8:1 '0' is not a positive whole number"),
    ("condense_after: long\n", "8:1 'long' is not a duration; write for example 60s, 5m, 2h or 1d"),
    ("openlineage: {namespace: house}\n", "8:1 openlineage takes either url or file, one of the two"),
    ("openlineage: {uri: 'http://m'}\n", "8:15 the key 'uri' is unknown here; did you mean url?"),
    ("plain:\n", "8:1 the key 'plain' is unknown here; did you mean pipeline or plain_tables?"),
]  # fmt: skip


@pytest.mark.parametrize(("more", "expected"), BAD_KEYS)
def test_faults_have_their_place_and_a_way_out(tmp_path: Path, more: str, expected: str) -> None:
    """A fault that goes unnoticed, or is reported elsewhere, costs an afternoon."""
    assert [expected] == problems(tmp_path, GOOD + more)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", "4:5 a kafka source takes either topics or topic_pattern, one of the two"),
        ("    topics: a\n    topic_pattern: b\n", "4:5 a kafka source takes either topics or topic_pattern, one of the two"),
        ("    topic_pattern: '['\n", "8:5 '[' is not a regular expression: unterminated character set at position 0"),
        ("    topics: a\n    start: erliest\n", "9:5 'erliest' is not a start; write earliest, latest, a time such as 2024-05-01T00:00:00Z, or {topic: {0: 1234}}"),
        ("    topics: a\n    start: {a: {x: 1}}\n", "9:5 the start of topic 'a' must be a map of partition to offset, whole numbers"),
        ("    topics: a\n    path: x\n", "9:5 the key 'path' belongs to a source of kind files, not kafka"),
    ],
)  # fmt: skip
def test_faults_of_kafka_sources(tmp_path: Path, more: str, expected: str) -> None:
    """A Kafka source that cannot be read must not wait for its reader to say so."""
    assert [expected] == problems(tmp_path, KAFKA + more)


def test_a_broker_is_needed(tmp_path: Path) -> None:
    """Without a broker nothing can be read."""
    text = KAFKA.replace("    bootstrap_servers: [a:9092, b:9092]\n", "    topics: t\n")
    assert ["4:5 the key 'bootstrap_servers' is missing"] == problems(tmp_path, text)


def test_all_faults_come_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    """One fault per run makes mending slow."""
    text = "pipelin: x\nlake: ${STOCK_NONE}\nsources: []\nspark: 5\nspark: 6\n"
    expected = [
        "1:1 the key 'pipelin' is unknown here; did you mean pipeline or openlineage?",
        "1:1 the key 'pipeline' is missing",
        "2:1 the environment variable STOCK_NONE is not set; set it or write ${STOCK_NONE:-default}",
        "3:1 sources must hold at least one entry",
        "4:1 a map of settings belongs here, such as {key: value}, not '5'",
        "5:1 the key 'spark' is here a second time; keep one",
    ]
    assert expected == problems(tmp_path, text)


# --- lanes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "part"),
    [
        ("match: shop_*.bin, into: shop.bin", "database"),
        ("match: bin, into: shop.bin", "database"),
        ("match: shop.bin_*, into: shop.bin", "table"),
        ("match: shop.s?.bin, into: 'shop.{table}'", "schema"),
        ("match: '*', into: 'shop.{table}'", "database"),
    ],
)
def test_shards_in_one_mirror_need_a_key_or_a_shard_column(tmp_path: Path, rule: str, part: str) -> None:
    """Positions of two tables cannot be compared: without a key, a mirror of both would be wrong in silence."""
    for more in ("no_key: append", "no_key: full_row", "history: true"):
        (found,) = problems(tmp_path, f"{GOOD}tables: [{{{rule}, {more}}}]\n")
        assert f"brings tables of several source {part}s into one mirror" in found
        assert 1 == len(loaded(tmp_path, f"tables: [{{{rule}, {more}, shard_column: shard}}]\n").tables)
    assert 1 == len(loaded(tmp_path, f"tables: [{{{rule}}}]\n").tables)


@pytest.mark.parametrize(
    "rule",
    [
        "match: shop.*, into: 'all.{table}'",
        "match: shop_*.bin, into: '{database}.bin'",
        "match: a.b, into: c.d",
    ],
)
def test_templates_that_keep_tables_apart_are_accepted(tmp_path: Path, rule: str) -> None:
    """A refusal without proof would be a nuisance."""
    assert 1 == len(loaded(tmp_path, f"tables: [{{{rule}}}]\n").tables)


def test_two_sources_of_one_table_are_refused(tmp_path: Path) -> None:
    """Two lanes in one mirror have no order between them."""
    text = (
        GOOD
        + "    options: {table: w.bin}\n  - {name: two, path: x, format: canal, options: {table: w.bin}}\n"
    )
    (found,) = problems(tmp_path, text)
    assert found.startswith("9:51 the sources 'bins' and 'two' both fill the mirror w.bin")
    assert 2 == len(loaded(tmp_path, "tables: [{match: w.bin, shard_column: shard}]\n", text).sources)
