"""Schemas in a folder: found by their fingerprints, and a folder that cannot be used says why."""

from __future__ import annotations

import json

import pytest

from ingest.decoding import schema_folder
from ingest.errors import SetupError

DEPOT = {
    "type": "record",
    "name": "DEPOT",
    "namespace": "GG",
    "fields": [{"name": "ID", "type": ["null", "long"]}],
}


@pytest.mark.parametrize(
    ("schema", "fingerprint"),
    [
        ('"null"', 7195948357588979594),
        ('"int"', 8247732601305521295),
        ('{"type": "int"}', 8247732601305521295),
    ],
)
def test_a_fingerprint_is_that_of_java(schema, fingerprint):
    """By another fingerprint every record would be refused (numbers: Avro's own `schema-tests.txt`)."""
    assert fingerprint == schema_folder.fingerprint(schema)


def test_schemas_are_found_by_what_they_say_and_not_by_their_files(tmp_path):
    """A record of an older structure would be read by the newest schema, its cells under the names of other columns."""
    older = DEPOT | {"fields": []}
    (tmp_path / "GG.DEPOT.avsc").write_text(json.dumps(DEPOT | {"doc": "as of today"}, indent=2), "utf-8-sig")
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "GG.DEPOT_1.avsc").write_text(json.dumps(older))
    (tmp_path / "notes.txt").write_text("no schema")
    found = schema_folder.schemas(str(tmp_path))
    assert {schema_folder.fingerprint(json.dumps(each)) for each in (DEPOT, older)} == found.keys()
    assert older == json.loads(found[schema_folder.fingerprint(json.dumps(older))])


def test_a_file_that_changed_is_read_again(tmp_path):
    """A process that runs for days would refuse all rows that come after a change of structure."""
    file = tmp_path / "GG.DEPOT.avsc"
    file.write_text(json.dumps(DEPOT))
    before = schema_folder.schemas(str(tmp_path))
    file.write_text(json.dumps(DEPOT | {"fields": []}))
    assert before.keys().isdisjoint(schema_folder.schemas(str(tmp_path)))


@pytest.mark.parametrize(
    ("text", "said"), [("{", "no Avro schema"), ('"nothing"', "no Avro schema"), ("\xff", "not UTF-8")]
)
def test_a_file_that_is_no_schema_is_named(tmp_path, text, said):
    """Its records would be rejected as if the folder did not have their schema."""
    (tmp_path / "GG.DEPOT.avsc").write_bytes(text.encode("latin-1"))
    with pytest.raises(SetupError, match=rf"GG\.DEPOT\.avsc is no Avro schema.*|{said}") as refused:
        schema_folder.schemas(str(tmp_path))
    assert said in str(refused.value)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    """A slip in its name would reject every record."""
    with pytest.raises(SetupError, match="no folder of Avro schemas"):
        schema_folder.schemas(str(tmp_path / "elsewhere"))


def test_two_schemas_of_one_fingerprint_are_not_chosen_from(tmp_path):
    """The fingerprint leaves out a decimal's scale: by the other file every amount would be a hundred times as large."""
    for scale in (0, 2):
        amount = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": scale}
        schema = DEPOT | {"fields": [{"name": "AMOUNT", "type": amount}]}
        (tmp_path / f"{scale}.avsc").write_text(json.dumps(schema))
    with pytest.raises(SetupError, match="differ in logical types"):
        schema_folder.schemas(str(tmp_path))
