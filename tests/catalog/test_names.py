"""Names in a catalog: safe, stable, and of one mirror each."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from ingest.catalog.names import CatalogName, assigned
from ingest.change import TableId
from ingest.config.entries import CatalogSettings
from ingest.store.names import mirror_path

GLUE = CatalogSettings("glue")
PARTS = st.one_of(
    st.none(), st.text(max_size=6), st.sampled_from(["a", "A", "a_b", "b", "_", "ı", "x" * 200])
)
TABLES = st.lists(st.builds(TableId, PARTS, PARTS, st.text(max_size=5)), max_size=8, unique=True)
RULES = st.sampled_from(["", "all", "{database}", "{schema}_{database}"])


def by_path(*tables: TableId) -> dict[str, TableId]:
    """Tables by the paths of their mirrors."""
    return {mirror_path(table): table for table in tables}


@given(TABLES, TABLES, RULES, st.sampled_from(["{table}", "{database}_{table}", "one"]))
def test_two_mirrors_never_have_one_name(first, more, database, table):
    """One mirror's name would show the rows of another, and a new mirror would take an old one's name."""
    settings = CatalogSettings("glue", database=database, table=table)
    known = assigned(by_path(*first), settings, {})
    names = assigned(by_path(*first, *more), settings, known)
    folded = [str(name).casefold() for name in names.values()]
    assert len(set(folded)) == len(by_path(*first, *more))
    assert known == {path: names[path] for path in known}
    assert all(re.fullmatch("[a-z0-9_]{1,200}", part) for name in names.values() for part in name)


def test_names_as_people_expect_them():
    """The rule of the documentation would not be what happens."""
    shop, owned = TableId("Shop", None, "Orders"), TableId("db", "hr", "people")
    assert CatalogName("shop", "orders") == assigned(by_path(shop), GLUE, {})[mirror_path(shop)]
    assert CatalogName("db_hr", "people") == assigned(by_path(owned), GLUE, {})[mirror_path(owned)]
    nowhere = TableId(None, None, "t")
    assert CatalogName("default", "t") == assigned(by_path(nowhere), GLUE, {})[mirror_path(nowhere)]
    ruled = CatalogSettings("glue", database="raw_{database}", table="{schema}_{table}")
    assert CatalogName("raw_shop", "orders") == assigned(by_path(shop), ruled, {})[mirror_path(shop)]


def test_a_name_that_a_new_rule_does_not_give_is_not_kept():
    """A changed rule would name new mirrors only."""
    shop = TableId("shop", None, "orders")
    old = {mirror_path(shop): CatalogName("other", "orders")}
    assert CatalogName("shop", "orders") == assigned(by_path(shop), GLUE, old)[mirror_path(shop)]
