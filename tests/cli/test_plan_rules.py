"""plan without a lake: what the rules of tables do to it."""

from __future__ import annotations

import pytest

from tests.cli.planning import FILES, planned
from tests.lakes import change, statement, touch

pytestmark = pytest.mark.usefixtures("no_session")


def _why_held(folder, rules):
    """Why the plan holds the one table that it holds."""
    found = planned(folder, FILES, rules, code=1)
    (held,) = [one for one in found["tables"] if one["action"] == "hold"]
    return held["why"]


def test_rules_take_part(folder):
    """The plan would name tables that the run leaves out, or by other names."""
    rules = "tables:\n  - {match: depot.bins, exclude: true}\n  - {match: '*', into: 'w.{database}_{table}', columns: {word: int32}}\n"
    (table,) = planned(folder, FILES, rules)["tables"]
    assert ("w.depot_shelves", True) == (table["table"], table["from_a_sample"])
    assert "INT" == next(one["type"] for one in table["columns"] if one["name"] == "word")


def test_entries_that_fit_nothing_are_reported(folder):
    """A typing error in a name would silently leave the wrong key, or no check."""
    rules = "tables:\n  - {match: depot.binz, keys: [id]}\n  - {match: depot.*}\nquality:\n  - {table: depot.shelfs}\n"
    found = planned(folder, FILES, rules)["warnings"]
    assert 2 == len(found)
    assert "match: depot.binz; did you mean depot.bins?" in found[0]
    assert "table: depot.shelfs; did you mean depot.shelves" in found[1]
    assert (
        [] == planned(folder, FILES, rules.replace("binz", "bins").replace("shelfs", "shelves"))["warnings"]
    )
    (folder / "bins-1.jsonl").write_text("", "utf-8")
    assert [] == planned(folder, FILES, rules)["warnings"]


def test_a_key_that_no_row_has_holds_its_table(folder):
    """Each change was refused, and the mirror was left with a column of NULLs."""
    why = _why_held(folder, "tables:\n  - {match: depot.bins, keys: [wrd]}\n  - {match: depot.*}\n")
    assert "names wrd, and none of its rows has such a column; did you mean word?: they have id," in why
    planned(folder, FILES, "tables:\n  - {match: depot.bins, keys: [word]}\n  - {match: depot.*}\n")


def test_columns_are_named_as_they_would_be(folder):
    """An operator who leaves a secret out looks here before the first run."""
    rules = "tables:\n  - match: depot.bins\n    columns: {word: {rename: text}, tall: exclude}\n"
    found = planned(folder, FILES, rules)
    table = next(one for one in found["tables"] if one["table"] == "depot.bins")
    assert [("id", "id"), ("word", "text")] == [(one["source"], one["name"]) for one in table["columns"]]
    assert ["tall"] == table["left_out"]
    taken = _why_held(folder, rules.replace("text", "id"))
    assert f"{folder}/depot.yaml:8:15 renames word to id" in taken


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("wrod = 'a'", "where: needs the column wrod of depot.bins, which the mirror does not have"),
        (
            "word > 5",
            "where: cannot be evaluated on depot.bins: Binder Error: Cannot compare values of type VARCHAR",
        ),
    ],
)
def test_conditions_that_cannot_be_asked_hold(folder, where, why):
    """A mirror that is empty for a typing error looks like one of a table without rows."""
    rules = f'tables:\n  - match: depot.bins\n    where: "{where}"\n'
    assert _why_held(folder, rules).startswith(f"{folder}/depot.yaml:8:5 {why}")
    good = planned(folder, FILES, rules.replace(where, "word = 'a'"))
    assert [] == [one for one in good["tables"] if one["action"] == "hold"]


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (
            "{compute: wrod || 'a'}",
            "columns: own needs the column wrod of depot.bins, which the mirror does not have",
        ),
        (
            "{compute: word > 5}",
            "columns: own cannot be evaluated on depot.bins: Binder Error: Cannot compare values of",
        ),
        (
            "{compute: CAST(word AS TIMESTAMP) - CAST(word AS TIMESTAMP)}",
            "columns: own cannot be evaluated on depot.bins: its type is INTERVAL, which a column cannot have",
        ),
    ],
)
def test_columns_that_cannot_be_computed_hold(folder, rule, why):
    """A column that is NULL for a typing error looks like one of a source without values."""
    rules = f"tables:\n  - match: depot.bins\n    columns: {{own: {rule}}}\n"
    assert _why_held(folder, rules).startswith(f"{folder}/depot.yaml:8:15 {why}")


def test_columns_of_rules_are_named_with_their_types(folder):
    """A computed column has the type that its inputs give it; no warning says that no row has shown it."""
    made = "long: {compute: length(word)}, at: {meta: event_time}, word2: {compute: upper(word)}, is: {constant: 5, type: int8}"
    rules = f"tables:\n  - match: depot.bins\n    columns: {{{made}}}\n"
    found = planned(folder, FILES, rules)
    table = next(one for one in found["tables"] if one["table"] == "depot.bins")
    types = {one["name"]: one["type"] for one in table["columns"]}
    wanted = {"long": "BIGINT", "at": "TIMESTAMP", "word2": "STRING", "is": "TINYINT"}
    assert wanted == {name: types[name] for name in wanted}
    rules_of = {one["name"]: one.get("rule") for one in table["columns"]}
    assert ("computed as length(word)", None) == (rules_of["long"], rules_of["word"])
    assert [] == found["warnings"]


@pytest.mark.parametrize("name", ["word", "WORD", "tall"])
def test_a_column_of_a_rule_is_not_confused_with_one_of_the_source(folder, name):
    """`tall` came with a statement, after the rule: its values would be hidden, or hide the rule's."""
    rules = f"tables:\n  - match: depot.bins\n    columns: {{{name}: {{meta: batch}}}}\n"
    (held,) = [one for one in planned(folder, FILES, rules, code=1)["tables"] if one["action"] == "hold"]
    assert held["why"] == (
        f"{folder}/depot.yaml:8:15 columns: makes a column {name}, and depot.bins has a column {name.lower()} of its own: "
        "give the rule another name."
    )


@pytest.mark.parametrize("policy", ["lenient", "evolve", "ignore"])
def test_a_condition_on_a_column_that_was_renamed_holds(folder, policy):
    """Every row would silently leave the mirror, for none carries the column any more."""
    with (folder / "bins-1.jsonl").open("a") as feed:
        feed.write("\n" + statement("bins", 5, "ALTER TABLE bins RENAME COLUMN WORD TO text"))
        feed.write(change("INSERT", "bins", 6, {"id": "2", "text": "a"}))
    touch(folder / "bins-1.jsonl")
    rules = f"tables:\n  - {{match: depot.bins, on_schema_change: {policy}, where: word = 'a'}}\n"
    (held,) = [one for one in planned(folder, FILES, rules, code=1)["tables"] if one["action"] == "hold"]
    assert (
        "where: needs the column word of depot.bins, which a statement has dropped or renamed" in held["why"]
    )
    back = statement("bins", 7, "ALTER TABLE bins RENAME COLUMN text TO word")
    with (folder / "bins-1.jsonl").open("a") as feed:
        feed.write(back)
    touch(folder / "bins-1.jsonl")
    assert [] == [one for one in planned(folder, FILES, rules)["tables"] if one["action"] == "hold"]


def test_columns_that_no_row_has_shown_are_reported(folder):
    """A typing error would leave a secret where it was."""
    rules = "tables:\n  - match: depot.bins\n    columns: {wrod: exclude, 'w*': exclude, word: include}\n"
    (warning,) = planned(folder, FILES, rules)["warnings"]
    assert (
        f"{folder}/depot.yaml:8:15 no row of depot.bins has shown a column wrod yet; did you mean word?"
        == warning
    )


def test_columns_without_a_type_are_reported(folder):
    """An amount that is a text is found out when it is summed up."""
    types = {"id": "bigint", "word": "varchar", "price": "decimal"}
    row = change("INSERT", "bins", 1, {"id": "1", "word": "a", "price": "9.50"}, mysqlType=types)
    (folder / "bins-1.jsonl").write_text(row, "utf-8")
    touch(folder / "bins-1.jsonl")
    (warning,) = planned(folder)["warnings"]
    assert "depot.bins: price would be STRING" in warning
    assert "ingest infer" in warning
    declared = 'tables: [{match: depot.bins, columns: {price: "decimal(10,2)"}}]\n'
    assert [] == planned(folder, FILES, declared)["warnings"]
    others = [row.replace('"bins"', f'"bins{n}"') for n in range(11)]
    (folder / "bins-2.jsonl").write_text("\n".join(others), "utf-8")
    touch(folder / "bins-2.jsonl")
    (warning,) = planned(folder)["warnings"]
    assert warning.startswith("depot.bins: price; depot.bins0: price; ")
    assert " and 4 more would be STRING, because the messages" in warning
    assert "write columns: for each of 12 tables; `ingest infer" in warning


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        ("where: CAST(word AS INTEGER) > 0", "where:"),
        ("columns: {own: {compute: CAST(word AS INTEGER)}}", "columns: own"),
        ("{into: a.b, shard_column: shard, where: CAST(word AS INTEGER) > 0}", "where:"),
    ],
)
@pytest.mark.parametrize(("last", "fails"), [("b", True), ("7", False), (None, False)])
def test_a_rule_that_fails_on_a_sampled_row_holds(folder, rule, what, last, fails):
    """The run would hold the mirror for the same row; values that later ones replace are not asked, there either."""
    feed, row = folder / "bins-1.jsonl", {"id": "1", "word": last}
    more = change("UPDATE" if last else "DELETE", "bins", 9, row if last else {"id": "1", "word": "b"})
    feed.write_text(feed.read_text("utf-8").partition('{"broken')[0] + more, "utf-8")
    touch(feed)
    rules = f"tables:\n  - {{match: depot.bins, {rule.strip('{}') if rule[0] == '{' else rule}}}\n"
    found = planned(folder, FILES, rules, code=int(fails))
    held = [one["why"] for one in found["tables"] if one["action"] == "hold"]
    assert fails == bool(held)
    if fails:
        assert f"{what} fails on a row: Conversion Error: Could not convert string 'b' to INT32" in held[0]
        assert held[0].startswith(f"{folder}/depot.yaml:")


def test_times_of_another_unit_are_reported(folder):
    """A run would show a lag of half a century."""
    feed = folder / "bins-1.jsonl"
    feed.write_text(change("INSERT", "bins", 1, {"id": "1", "word": "a"}, es=1_700_000_000), "utf-8")
    touch(feed)
    (warning,) = planned(folder)["warnings"]
    assert warning.startswith("depot.bins: the newest change is of 1970-01-20, as if the source sent seconds")
    feed.write_text(change("INSERT", "bins", 1, {"id": "1", "word": "a"}), "utf-8")
    touch(feed)
    assert [] == planned(folder)["warnings"]
