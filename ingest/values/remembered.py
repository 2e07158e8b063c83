"""A cache of results by arguments that come from messages, in bounded memory.

`functools.lru_cache` bounds the number of results alone: a thousand table names of a megabyte are a gigabyte.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Generic, TypeVar

# characters of one result's arguments: too many to keep; the types of a very wide table have 30,000
LONG = 1 << 16
KEPT = 1 << 24  # characters of the arguments of all results kept
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Bounded(dict[_Key, _Value], Generic[_Key, _Value]):
    """A dictionary of at most so many entries, which forgets all of them before one more.

    For what is looked up without a call, or by other keys than `remembered` takes.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: _Key, value: _Value) -> None:
        if len(self) >= self._most:
            self.clear()
        super().__setitem__(key, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._most,)  # sent to another process it is empty


def remembered(most: int) -> Callable[[_Function], _Function]:
    """Keep up to ``most`` results of a function of texts, bytes and tuples of such.

    All are forgotten, at the next arguments that are not known, after arguments of more than `LONG` characters, or of
    more than `KEPT` together. A known result costs what it costs with `lru_cache`.
    """

    def decorate(function: _Function) -> _Function:
        held = 0

        @wraps(function)
        def missed(*given: Any) -> Any:
            nonlocal held
            if held > KEPT:
                cached.cache_clear()
                held = 0
            result = function(*given)
            length = _length(given)
            held += length if length <= LONG else KEPT + 1
            return result

        cached = lru_cache(maxsize=most)(missed)
        return cached  # type: ignore[return-value]

    return decorate


def _length(given: object) -> int:
    if isinstance(given, str | bytes):
        return len(given)
    return sum(map(_length, given)) if isinstance(given, tuple) else 0
