"""Protobuf read by Google's own library, from tables of fields instead of generated classes.

A format writes down, message by message, those fields of its vendor's ``.proto`` that it reads, each by its number in the
words of a ``.proto``: ``{1: "string name", 2: "repeated Column columns"}``. What a table does not name is skipped, but slowly:
a table should have whatever a writer usually sends. A message that does not end with its last field, has a field of another
kind than its table says, or a ``string`` that is not UTF-8, is refused whole; the library bounds lengths by what is left, and the
depth of groups.

Whether a field is sent shows also where it is 0 or empty (``HasField``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import Any

from ingest.errors import Undecodable

Fields = Mapping[int, str]


class MessageTypes:
    """The messages of one ``.proto``, by their names.

    A name that a field's type does not find among them is one of Protobuf's own: ``int64``, ``uint64``, ``bool``,
    ``string``, ``bytes``. Numbers and enums are ``int64`` or ``uint64``, so that none is cut.
    """

    def __init__(self, document: str, fields: Mapping[str, Fields]) -> None:
        self._document, self._fields = document, fields

    def read(self, name: str, data: bytes) -> Any:
        """One message, its fields as attributes; `Undecodable`: ``bad-protobuf``."""
        parse = self._parsers[name]
        try:
            message = parse(data)
            message.DiscardUnknownFields()
            # written again, no field of a table takes more bytes than it was sent with (a repeated number might, packed: there is
            # none): where as many come out, all are known
            is_foreign = message.ByteSize() != len(data) and self._is_foreign(name, [parse(data)])
        except Exception:  # the library's own, which is imported by the first message
            is_foreign = True
        if is_foreign:
            raise Undecodable(
                "bad-protobuf",
                f"the bytes are no {name} of {self._document}: they are cut, of another type, or have a text that is not UTF-8",
            )
        return message

    def _is_foreign(self, name: str, messages: Iterable[Any]) -> bool:
        """True if a number of its table comes with a value of another kind, which the library takes for unknown."""
        for message in messages:
            unknown = self._unknown(message)
            if len(unknown) and any(field.field_number in self._fields[name] for field in unknown):
                return True
        for field, kind, is_list in self._inner[name]:
            for message in messages:
                if is_list:
                    below = getattr(message, field)
                else:
                    below = [getattr(message, field)] if message.HasField(field) else ()
                if below and self._is_foreign(kind, below):
                    return True
        return False

    @cached_property
    def _unknown(self) -> Callable[[Any], Collection[Any]]:
        from google.protobuf.unknown_fields import UnknownFieldSet

        return UnknownFieldSet  # type: ignore[no-any-return]

    @cached_property
    def _inner(self) -> Mapping[str, list[tuple[str, str, bool]]]:
        """Of each message, the fields that are messages: a field's name, its message, and whether it is repeated."""
        declared = {
            name: [words.split() for words in fields.values()] for name, fields in self._fields.items()
        }
        return {
            name: [
                (words[-1], words[-2], words[0] == "repeated") for words in of_fields if words[-2] in declared
            ]
            for name, of_fields in declared.items()
        }

    @cached_property
    def _parsers(self) -> Mapping[str, Callable[[bytes], Any]]:
        from google.protobuf import descriptor_pool, message_factory
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        file = FileDescriptorProto(name=self._document, package=_PACKAGE, syntax="proto3")
        for name, fields in self._fields.items():
            described = file.message_type.add(name=name)
            for number, declared in fields.items():
                self._describe(described, number, *declared.split())
        pool = descriptor_pool.DescriptorPool()
        pool.AddSerializedFile(file.SerializeToString())
        return {
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")).FromString
            for name in self._fields
        }

    def _describe(self, message: Any, number: int, *words: str) -> None:
        """Add a field to a message's description."""
        label, kind, name = ("", *words)[-3:]
        field = message.field.add(name=name, number=number)
        field.label = field.LABEL_REPEATED if label == "repeated" else field.LABEL_OPTIONAL
        if kind in self._fields:
            field.type, field.type_name = field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
        else:
            field.type = getattr(field, f"TYPE_{kind.upper()}")
            if not label:  # that it is there shows although it is 0 or empty: a choice of one field
                field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{name}")


_PACKAGE = "read"
