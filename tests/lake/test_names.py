"""Source names in paths and columns: injective, inside the lake, bounded, kept."""

from __future__ import annotations

import json
import posixpath
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ingest.change import TableId
from ingest.config import TableRule
from ingest.ledgers.mirrors import Mirror, grown
from ingest.store.names import column_name, folded, literal, mirror_path, path_part, quoted
from tests.lake.hostile import names

ANY = st.text(st.characters(exclude_categories=()), max_size=150)  # lone surrogates are sent, too


def test_twenty_thousand_names_give_as_many_paths() -> None:
    """Two tables in one folder would overwrite each other, also where the file system ignores case."""
    paths = [path_part(name) for name in names(20_000)]
    assert 20_000 == len({path.lower() for path in paths})
    assert 100 >= max(map(len, paths))


def test_every_part_of_a_name_is_distinguished() -> None:
    """``a.b`` in one part and ``a`` and ``b`` in two are different tables."""
    some = [None, "a", "a.b", "b", "", "..", "~"]
    tables = [TableId(x, y, z) for x in some for y in some for z in some[1:]]
    assert len(tables) == len({mirror_path(table) for table in tables})


@given(ANY, ANY)
def test_paths_stay_inside(database: str, table: str) -> None:
    """A name that climbs out of the lake writes over other people's files."""
    path = mirror_path(TableId(database, None, table))
    assert posixpath.normpath(path) == path
    assert 3 == len(path.split("/"))
    assert all(part and part[0] not in "._-" for part in path.split("/"))
    assert path.isascii()


@given(ANY, ANY)
def test_paths_are_injective(left: str, right: str) -> None:
    """One folder for two names mixes two tables."""
    assert (left == right) == (path_part(left) == path_part(right))


def test_columns_are_distinguished() -> None:
    """Delta tables ignore case and refuse some characters: every column still gets a name of its own."""
    taken: set[str] = set()
    made = [column_name(name, taken) for name in names(3_000)]
    assert 3_000 == len({folded(name) for name in made})
    assert not [name for name in made if set(name) & set(" ,;{}()\n\t=%/\\`\x00") or len(name) > 255]


def test_harmless_columns_keep_their_names() -> None:
    """Encoded names that need no encoding would make mirrors hard to query."""
    for name in ("id", "order_no", "Größe", "客户", "a-b", "a.b", "x$y", "2nd"):
        assert name == column_name(name, set())


def test_encoded_names_are_kept() -> None:
    """A name allocated again in another order would exchange two columns of a mirror."""
    table = TableId("d", None, "t")
    first = grown(None, table, TableRule(), ("a b",), {"x": "int32", "X": "int32"})
    again = Mirror.from_value(first.path, json.loads(json.dumps(first.to_value())))
    assert first == again
    later = grown(again, table, TableRule(), ("a b",), {"X": "int32", "a_x20b": "int32", "x": "int32"})
    assert first.columns == later.columns[:3]
    assert 4 == len({folded(one.column) for one in later.columns})
    assert replace(later, columns=first.columns) == first


@given(ANY)
def test_quoting(name: str) -> None:
    """A name that ends its quotes goes on as SQL."""
    assert name == quoted(name)[1:-1].replace("``", "`")
    assert "`" not in quoted(name)[1:-1].replace("``", "")
    assert "'" not in literal(name)[1:-1].replace("\\\\", "").replace("\\'", "")


def test_hostile_names_survive_decisions() -> None:
    """A schema that cannot be read back loses the mirror's columns."""
    columns = [name for name in names(300) if name.isprintable()]
    mirror = grown(
        None, TableId("d", "s", "t"), TableRule(), tuple(columns[:2]), dict.fromkeys(columns, "string")
    )
    assert mirror == Mirror.from_value(mirror.path, mirror.to_value())
    assert mirror.to_value()["table"] == ["d", "s", "t"]
