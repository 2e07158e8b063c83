"""What `ingest detect` says of messages whose format is known: ``python -m benchmarks.detect [--cut N]``.

One line for each format: of its golden messages, each alone; of the random histories of its dialects; of messages that are
cut off or lack a byte; and of messages with a renamed member, how many are named rightly and with certainty, with a doubt or not
at all, or wrongly and with certainty. The last lines are of samples of two formats, of messages of no format, and of other
products. Exit 1 if one is wrong with certainty.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from random import Random

from ingest import formats
from tests.formats import golden
from tests.formats.one_history.history import history
from tests.formats.one_history.test_one_history import DIALECTS
from tests.operate.test_detect_corpus import (
    FOREIGN,
    OF_OTHER_PRODUCTS,
    SENT_BY_ANOTHER,
    bytes_of,
    certain,
    cut,
    is_read_alike,
    mixed,
    renamed,
)

KINDS = ("golden", "history", "cut", "renamed")
TWO = 200  # samples of two formats, and messages with a renamed member
RIGHT, DOUBT, WRONG = "right", "doubt", "wrong"


def main() -> int:
    """Judge the corpus and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cut", type=int, default=500, help="how many damaged messages")
    counts = counted(parser.parse_args().cut)
    foreign = Counter(_said(certain([bytes_of(each)]), None) for each in FOREIGN)
    others = Counter(_said(certain([bytes_of(each)]), None) for each in OF_OTHER_PRODUCTS.values())
    print(table(counts, foreign))
    print(f"of other products: {others[DOUBT]} said so, {others[WRONG]} named with certainty")
    random = Random("samples of two formats")  # noqa: S311 - data, no secrets
    of_two = Counter(_said_of_two(mixed(random)) for _ in range(TWO))
    print(
        f"of two formats: {of_two[DOUBT]} said so, {of_two[RIGHT]} read alike by both, {of_two[WRONG]} taken for one"
    )
    return int(any(said == WRONG for _, _, said in counts) or WRONG in foreign + others + of_two)


def _said_of_two(messages: list[tuple[bytes, str]]) -> str:
    named = certain([value for value, _ in messages])
    if named is None:
        return DOUBT
    return RIGHT if is_read_alike(named, messages) else WRONG


Counts = Counter[tuple[str, str, str]]
"""Messages by their format, the kind of corpus and what is said of them."""


def counted(cuts: int) -> Counts:
    """What is said of every message of the corpus."""
    counts: Counts = Counter()
    for case in golden.cases():
        name = case.parent.name
        if value := golden.message(case)[0].value:
            expected = SENT_BY_ANOTHER.get((name, case.stem), name)
            counts[name, "golden", _said(certain([value]), expected)] += 1
    sent = {dialect: _sent(dialect) for dialect in DIALECTS}
    for dialect, messages in sent.items():
        name = DIALECTS[dialect].format
        counts[name, "history", _said(certain(messages), name)] += 1
    random = Random("cut messages")  # noqa: S311 - data, no secrets
    for kind, times, changed in (("cut", cuts, cut), ("renamed", TWO, renamed)):
        for _ in range(times):
            dialect = random.choice(sorted(sent))
            name = DIALECTS[dialect].format
            counts[name, kind, _said(certain([changed(random.choice(sent[dialect]), random)]), name)] += 1
    return counts


def _sent(dialect: str) -> list[bytes]:
    return [message.value for message in DIALECTS[dialect].write(history(1)) if message.value]


def _said(named: str | None, expected: str | None) -> str:
    if named is None:
        return DOUBT
    return RIGHT if named == expected else WRONG


def table(counts: Counts, foreign: Counter[str]) -> str:
    """The counts as text: for each kind of corpus what is right, in doubt or unknown, and wrong."""
    lines = [f"{'format':22}" + "".join(f"{kind + ' right/doubt/wrong':>28}" for kind in KINDS)]
    for name in formats.names():
        cells = ("/".join(str(counts[name, kind, said]) for said in (RIGHT, DOUBT, WRONG)) for kind in KINDS)
        lines.append(f"{name:22}" + "".join(f"{cell:>28}" for cell in cells))
    total = Counter(said for (_, _, said), count in counts.items() for _ in range(count))
    lines.append(
        f"all: {total[RIGHT]} right, {total[DOUBT]} in doubt or unknown, {total[WRONG]} wrong with certainty"
    )
    lines.append(f"of no format: {foreign[DOUBT]} said so, {foreign[WRONG]} named with certainty")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
