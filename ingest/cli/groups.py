"""A verb with verbs of its own, whose bare call lists."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

LIST = "list"


class Listing(TyperGroup):
    """A group whose bare call, ``ingest VERB FILE``, is its hidden command `LIST`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the listing's own name before what is not another command's."""
        if args and args[0] not in self.commands and not {"-h", "--help"} & set(args[:1]):
            args = [LIST, *args]
        return super().parse_args(ctx, args)
