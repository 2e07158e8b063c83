"""The objects of one lake in an S3 store: what delta-rs' client of stores cannot do, by botocore's.

That client also keeps Python's other threads waiting while it waits for the store; this one does not. It finds credentials as Amazon's other clients do, if the options have none.
"""

from __future__ import annotations

import importlib.util
import io
import os
import zlib
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

_REFUSED = 412
_PASSING = (408, 409, 429)


def is_installed() -> bool:
    """True if the client's package is there: `pip install 'ingest[s3]'`."""
    return importlib.util.find_spec("botocore") is not None


class Objects:
    """A lake's objects, by their paths under its root; errors are botocore's."""

    def __init__(self, root: str, options: Mapping[str, str]) -> None:
        import botocore  # type: ignore[import-untyped]
        from botocore.config import Config  # type: ignore[import-untyped]
        from botocore.session import Session  # type: ignore[import-untyped]

        self._bucket, _, folder = root.partition("://")[2].partition("/")
        self._folder = f"{folder}/" if folder else ""
        unsigned = {"signature_version": botocore.UNSIGNED} if options.get("aws_skip_signature") else {}
        self._client: Any = Session().create_client(
            "s3",
            region_name=options.get("aws_region"),
            endpoint_url=options.get("aws_endpoint_url"),
            aws_access_key_id=options.get("aws_access_key_id"),
            aws_secret_access_key=options.get("aws_secret_access_key"),
            aws_session_token=options.get("aws_session_token"),
            config=Config(
                connect_timeout=5,
                read_timeout=30,
                retries={"mode": "standard", "max_attempts": 4},
                max_pool_connections=16,
                request_checksum_calculation="when_required",  # other stores do not know the newer ones
                response_checksum_validation="when_required",
                **unsigned,
            ),
        )

    def _place(self, path: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._folder + path}

    def put_new(self, path: str, data: bytes) -> bool:
        """Write an object unless there is one; False if there is."""
        try:
            self._client.put_object(**self._place(path), Body=data, IfNoneMatch="*")
        except self._client.exceptions.ClientError as error:
            if error.response["ResponseMetadata"].get("HTTPStatusCode") != _REFUSED:
                raise
            return False
        return True

    def is_final(self, error: Exception) -> bool:
        """True for an answer that a second attempt will not change."""
        if not isinstance(error, self._client.exceptions.ClientError):
            return type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError")
        status = error.response["ResponseMetadata"].get("HTTPStatusCode") or 0
        return 400 <= status < 500 and status not in _PASSING

    def put(self, path: str, data: bytes) -> None:
        """Write an object, or replace it."""
        self._client.put_object(**self._place(path), Body=data)

    def content(self, path: str) -> bytes | None:
        """An object whole; None if there is none."""
        answer = self._found(path)
        return None if answer is None else bytes(answer["Body"].read())

    def open(self, path: str, most: int) -> io.BytesIO | Ranged:
        """An object for reading anywhere in it, with one request if it has at most so many bytes.

        Raises:
            FileNotFoundError: there is none.
        """
        answer = self._found(path)
        if answer is None:
            raise FileNotFoundError(path)
        if answer["ContentLength"] <= most:
            return io.BytesIO(answer["Body"].read())
        answer["Body"].close()
        return Ranged(self, path, answer["ContentLength"])

    def part(self, path: str, start: int, end: int) -> bytes:
        """The bytes of an object from one place to another."""
        answer = self._client.get_object(**self._place(path), Range=f"bytes={start}-{end - 1}")
        return bytes(answer["Body"].read())

    def age(self, path: str) -> float | None:
        """Seconds since an object was written, by the store's clock; None if there is none."""
        answer = self._found(path)
        if answer is None:
            return None
        answer["Body"].close()
        now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        return float((now - answer["LastModified"]).total_seconds())

    def _found(self, path: str) -> Any:
        try:
            return self._client.get_object(**self._place(path))
        except self._client.exceptions.NoSuchKey:
            return None

    def listed(self, folder: str, since: str = "") -> Iterator[tuple[str, os.stat_result]]:
        """The names of the objects in a folder, from one on, with what changes whenever one of them does."""
        head = f"{self._folder}{folder}/"
        start = {"StartAfter": f"{head}{since[:-1]}"} if since else {}
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=head, Delimiter="/", **start
        )
        for page in pages:
            for entry in page.get("Contents", ()):
                name = entry["Key"].removeprefix(head)
                if name and name >= since:
                    mark, moment = zlib.crc32(entry["ETag"].encode()), int(entry["LastModified"].timestamp())
                    yield name, os.stat_result((0, mark, 0, 1, 0, 0, entry["Size"], 0, moment, 0))


class Ranged(io.RawIOBase):
    """A large object, of which each read fetches what it reads."""

    def __init__(self, objects: Objects, path: str, size: int) -> None:
        super().__init__()
        self._objects, self._path, self._size, self._at = objects, path, size, 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        """The place of the next read."""
        return self._at

    def size(self) -> int:
        """The object's size in bytes."""
        return self._size

    def readall(self) -> bytes:
        """Read the rest."""
        return self._next(self._size)

    def readinto(self, buffer: Any) -> int:
        """Read at most so many bytes as the buffer has."""
        data = self._next(min(self._at + len(buffer), self._size))
        buffer[: len(data)] = data
        return len(data)

    def _next(self, end: int) -> bytes:
        data = self._objects.part(self._path, self._at, end) if self._at < end else b""
        self._at += len(data)
        return data
