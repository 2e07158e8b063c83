"""Which server counted a position: the positions of two cannot be compared."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1024)
def binlog(server: str | None, file: str | None) -> tuple[str, ...]:
    """``("server 7", "log mysql-bin")`` of a server's id and a log file's name, each as far as it is known.

    A snapshot's rows name the file and server 0, so each of the two is a word of its own.
    """
    known = (("server", server if server != "0" else None), ("log", (file or "").rpartition(".")[0]))
    return tuple(f"{kind} {name}" for kind, name in known if name)
