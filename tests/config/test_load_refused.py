"""The faults of a pipeline file, each with its place and a way out."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ingest.config import load
from ingest.errors import ConfigError
from tests.config.pipeline_file import GOOD, KAFKA, loaded, problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ": is empty; `ingest init {file} --force` writes a starter"),
        ("# only words\n", ": holds only comments; `ingest init {file} --force` writes a starter"),
        ("- a\n", "1:1 the file holds a list; it must hold keys such as pipeline: and sources:"),
        ("words", "1:1 the file holds a single value; it must hold keys such as pipeline: and sources:"),
        ("a: [1\nb: 2\n", "1:4 this [ is not closed: a comma or the ] is missing behind it"),
        (
            "a: [",
            "1:5 is not YAML: while parsing a flow node: expected the node content, but found '<stream end>'",
        ),
        ("a:\n\t- b\n", "2:1 a tab is where YAML wants spaces; indent with spaces"),
        ("a: 1\n---\nb: 2\n", "2:1 a second document starts here; keep one pipeline in one file"),
        ("a: *b\n", "1:4 is not YAML: found undefined alias 'b'"),
        ("a: &a [*a]\n", "1:4 the file is too large or nested too deeply (an alias that holds itself?)"),
    ],
)
def test_files_that_are_no_pipeline(tmp_path: Path, text: str, expected: str) -> None:
    """The user would get a traceback instead of one sentence."""
    assert [expected.replace("{file}", str(tmp_path / "stock.yaml")).lstrip(":")] == problems(tmp_path, text)


def test_an_alias_bomb_is_refused(tmp_path: Path) -> None:
    """A few lines of nested aliases would fill the memory."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert "too large" in problems(tmp_path, "\n".join(lines))[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x: &a {<<: *a}\n", "1:4 the file is too large or nested too deeply"),
        ("x: &a {<<: [*a, *a]}\n", "nested too deeply"),
        ("x0: &a0 {}\n" + "".join(f"x{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 13)),
         "too large or nested"),
        (f"x: {'[' * 1600}{']' * 1600}\n", "1:44 is not YAML: it is nested more than 40 deep"),
        ("x: " + "[" * 50_000, "nested more than 40 deep"),
        ("- " * 5000 + "x", "nested more than 40 deep"),
        (f"{'{a: ' * 3000}{'}' * 3000}", "nested more than 40 deep"),
        ("? " * 3000, "nested more than 40 deep"),
        ("x:\n" + "\n".join(" " * i + "a:" for i in range(1, 2000)), "nested more than 40 deep"),
        ("#" * (5 << 20), "it has more than 4194304 bytes"),
    ],
)  # fmt: skip
def test_a_small_file_takes_no_time(tmp_path: Path, text: str, expected: str) -> None:
    """A few hundred bytes would keep `ingest validate` busy for hours, and `ingest serve` from starting."""
    began = time.process_time()
    assert expected in problems(tmp_path, text)[0]
    assert time.process_time() - began < 2


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    """A pipe waits for a writer, a device never ends, the kernel's log waits for its next line."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for file in (pipe, Path("/dev/zero")):
        with pytest.raises(ConfigError, match="cannot be read: it is not a regular file"):
            load(file)
    for name in (pipe, "/dev/zero", "/proc/kmsg", "/proc/self/environ", "/dev/null", tmp_path):
        [problem] = problems(tmp_path, GOOD.replace("pipeline: stock", f"pipeline: ${{file:{name}}}"))[:1]
        assert f"the file {name} of ${{file:...}} cannot be read" in problem


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
    ("tables: [{columns: {a: 'decimal(10;2)'}}]\n", "8:21 'decimal(10;2)' is not a type; did you mean decimal(10,2)?"),
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
    ("tables: [{where: 'now() > a'}]\n", "8:11 'NOW()' is not allowed in a condition: write comparisons of the row's own columns, with AND, OR, NOT, IN, BETWEEN, LIKE, CASE, CAST, coalesce, lower, upper, length, trim, substring, round, year, month, day, || and arithmetic"),
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
    ("tables: [{columns: {t: {compute: random() * a}}}]\n", "8:21 'RANDOM()' is not allowed in an expression: write comparisons of the row's own columns, with AND, OR, NOT, IN, BETWEEN, LIKE, CASE, CAST, coalesce, lower, upper, length, trim, substring, round, year, month, day, || and arithmetic"),
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
    ("catalog: {kind: hive}\n", "8:1 catalog of kind hive needs uri:"),
    ("catalog: {kind: hive, uri: 'http://m'}\n", "8:1 uri: of a Hive metastore is written thrift://host:9083, several with commas"),
    ("catalog: {kind: unity, uri: 'thrift://m', catalog: c}\n", "8:1 uri: of a catalog of kind unity is written http://host:port or https://host"),
    ("catalog: {kind: glue, token: '${HOME}'}\n", "8:1 token: has no meaning for a catalog of kind glue"),
    ("catalog: {kind: glu}\n", "8:11 'glu' is not one of hive, glue or unity; did you mean glue?"),
    ("catalog: {kind: glue, database: 'lake_{databse}'}\n", "8:23 {databse} is not a placeholder; did you mean database or table?; there are {database}, {schema} or {table}"),
    ("catalog: {kind: glue, database: 'd_{table}'}\n", "8:1 database: cannot hold {table}: each mirror would get a database of its own"),
    (
        "writer: arrow\n",
        ("8:1 the key 'writer' is not used any more: write engine: spark, by which Spark jobs do all work, or engine: "
        "auto, by which this process does what is little"),
    ),
    ("engine: arrow\n", "8:1 'arrow' is not one of spark or auto"),
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
    """With one fault per run, a file would take many runs to correct."""
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
    """Positions of two tables cannot be compared: without a key, a mirror of both would be wrong silently."""
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
