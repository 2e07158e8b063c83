"""Schemas in a folder: found by their fingerprints, and a folder that cannot be used says why."""

from __future__ import annotations

import json
import pickle
import re

import pytest

from ingest.decoding import schema_folder, schema_registry
from ingest.errors import SetupError, Undecodable

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
def test_a_file_that_is_no_schema_is_named_and_hides_no_other(tmp_path, text, said):
    """GoldenGate may be writing it: all other tables would wait for it."""
    (tmp_path / "GG.DEPOT.avsc").write_bytes(text.encode("latin-1"))
    (tmp_path / "GG.YARD.avsc").write_text(json.dumps(DEPOT))
    found = schema_folder.schemas(str(tmp_path))
    [fault] = found.faults
    assert re.search(rf"GG\.DEPOT\.avsc is no Avro schema.*|{said}", fault)
    assert said in fault
    assert {schema_folder.fingerprint(json.dumps(DEPOT))} == found.keys()


def test_a_folder_that_is_not_there_is_named(tmp_path):
    """A slip in its name would reject every record."""
    place = str(tmp_path / "elsewhere")
    [fault] = schema_folder.schemas(place).faults
    assert "no folder of Avro schemas" in fault
    with pytest.raises(SetupError, match="no folder of Avro schemas"):
        schema_registry.client(place)(7)


def scaled(scale):
    """A schema with a decimal; its fingerprint is the same for each scale."""
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": scale}
    return json.dumps(DEPOT | {"fields": [{"name": "AMOUNT", "type": amount}]})


@pytest.mark.parametrize(("files", "stored"), [((0, 2), False), ((2,), True), ((0, 2), True)])
def test_schemas_of_one_fingerprint_are_not_chosen_from(tmp_path, files, stored):
    """The fingerprint leaves out a decimal's scale: by the other schema every amount would be a hundred times as large."""
    for scale in files:
        (tmp_path / f"{scale}.avsc").write_text(scaled(scale))
    number = schema_folder.fingerprint(scaled(0))
    (tmp_path / "other.avsc").write_text(json.dumps(DEPOT))
    found = schema_folder.schemas(str(tmp_path), {number: scaled(0)} if stored else {})
    assert {schema_folder.fingerprint(json.dumps(DEPOT))} == found.keys()
    for again in (found, pickle.loads(pickle.dumps(found))):
        with pytest.raises(Undecodable, match=r"2\.avsc and .*differ in logical types") as refused:
            again[number]
        assert "unsure-schema" == refused.value.code


def test_a_stored_schema_is_read_by_while_its_file_means_the_same(tmp_path):
    """A file that says more in words would refuse every record."""
    (tmp_path / "2.avsc").write_text(json.dumps(json.loads(scaled(2)) | {"doc": "as of today"}, indent=1))
    number = schema_folder.fingerprint(scaled(2))
    assert {number: scaled(2)} == schema_folder.schemas(str(tmp_path), {number: scaled(2)})


def test_a_client_reads_its_folder_once(tmp_path, monkeypatch):
    """A preview asks for each schema of a batch, and the folder may hold thousands of files."""
    (tmp_path / "2.avsc").write_text(scaled(2))
    reads = []
    monkeypatch.setattr(
        schema_folder,
        "_files",
        lambda folder, files=schema_folder._files: reads.append(folder) or files(folder),
    )
    ask = schema_registry.client(str(tmp_path))
    number = schema_folder.fingerprint(scaled(2))
    assert [scaled(2)] * 2 == [ask(number), ask(number)]
    for unknown in (7, 8):
        with pytest.raises(KeyError):
            ask(unknown)
    assert 1 == len(reads)
