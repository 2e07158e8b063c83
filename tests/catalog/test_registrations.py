"""What must be done to a catalog: the comparison of what is wanted with what is registered."""

from __future__ import annotations

from dataclasses import replace

from ingest.catalog.entries import Registered, RegisteredColumn
from ingest.catalog.names import CatalogName
from ingest.catalog.registrations import CatalogSteps, CatalogTable, Registration, Wanted, difference, target
from ingest.change import TableId
from ingest.config.entries import CatalogSettings


def table(name: str, path: str = "", *columns: str) -> CatalogTable:
    """A table with columns of text."""
    path = path or f"mirrors/d/{name}"
    fields = tuple(RegisteredColumn(column, "STRING", column, "string") for column in columns or ("id",))
    entry = Registered(TableId("d", None, name), f"/lake/{path}", fields, ("id",))
    return CatalogTable(path, CatalogName("d", name), entry)


A, B = table("a"), table("b")


def test_what_is_in_step_is_left_alone():
    """Each run would write to the catalog."""
    assert CatalogSteps() == difference(Wanted((A, B)), [A.registration, B.registration])


def test_new_and_gone_and_changed():
    """A table would be missing, left over, or have former columns."""
    gone = replace(B.registration, name=CatalogName("d", "gone"), path="mirrors/d/gone")
    wider = table("a", "", "id", "more")
    assert CatalogSteps((gone,), (wider, B)) == difference(Wanted((wider, B)), [A.registration, gone])


def test_each_part_of_an_entry_counts():
    """A comment, a type, an order of columns or a folder that changed would not be seen."""
    column = A.entry.fields[0]
    others = [
        replace(A.entry, path="/elsewhere/a"),
        replace(A.entry, keys=()),
        replace(A.entry, fields=(replace(column, comment="what it is"),)),
        replace(A.entry, fields=(replace(column, delta="INT"),)),
        replace(A.entry, fields=(replace(column, name="other"),)),
    ]
    digests = {replace(A, entry=entry).registration.definition for entry in others}
    assert len(digests - {A.registration.definition}) == len(others)


def test_a_name_that_another_mirror_takes_is_put_and_not_dropped():
    """The drop would take the new table's entry with it."""
    former = Registration("mirrors/d/old", A.name, "x")
    assert CatalogSteps((), (A,)) == difference(Wanted((A,)), [former])


def test_a_mirror_that_moves_to_another_name_leaves_the_former():
    """Two names would show one table."""
    moved = replace(A, name=CatalogName("d", "new"))
    assert CatalogSteps((A.registration,), (moved,)) == difference(Wanted((moved,)), [A.registration])


def test_the_entry_of_a_table_that_is_gone_for_now_stays():
    """Its grants would be lost until the mirror is folded again."""
    assert CatalogSteps() == difference(Wanted((B,), ((A.path, A.name),)), [A.registration, B.registration])


def test_a_catalog_is_named_without_its_password():
    """Messages and decisions would show it."""
    settings = CatalogSettings("unity", "https://me:secret@unity:8443/x?y=secret", "lake")
    assert "unity https://unity:8443/x lake" == target(settings)
    several = CatalogSettings("hive", "thrift://a:1,thrift://b:2")
    assert "hive thrift://a:1,thrift://b:2" == target(several)
