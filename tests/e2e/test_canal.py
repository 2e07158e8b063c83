"""From a real MariaDB through Canal's own server and a real broker to mirrors: every cell of every table compared.

The history is random; the test prints its seed, and ``INGEST_SEED`` repeats one.
"""

from __future__ import annotations

import importlib.util
import json
import time
from collections import Counter

import pytest

from tests.e2e import databases, typed_tables
from tests.e2e.canal import ZONE, Canal, fetched
from tests.e2e.feed import Feed, say, write
from tests.e2e.histories import History
from tests.e2e.services import Missing

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not importlib.util.find_spec("jpype"), reason="pip install -e '.[e2e]' brings JPype"),
]
INSTANCES = {
    "whole": {"canal.mq.topic": "garden"},
    "apart": {"canal.mq.topic": "rest", "canal.mq.dynamicTopic": r"garden\..*"},
}
"""Two ways to keep the order: one partition for all, and one topic of one partition for each table."""
TOPICS = {
    "whole": "[garden]",
    "apart": "[rest, garden_plants, garden_beds, garden_notes, garden_orders, garden_marks]",
}


class Sent(Feed):
    """A history, Canal's instances that send it, and a pipeline for each."""

    def __init__(self, folder, topics, history, canal):
        super().__init__(folder, history)
        self.topics = topics
        self.canal = canal
        self.seen = dict.fromkeys(("garden", "garden_marks"), 0)
        self.killed = False
        for name in INSTANCES:
            source = f"    topics: {TOPICS[name]}\n    format: canal\n    options: {{timezone: {ZONE}}}\n"
            self.add(name, topics.address, source)

    def places(self):
        """The topic of each instance that holds the marks."""
        return self.seen

    def has_come(self, place, mark):
        """Look at what has come since the last look."""
        values = self.topics.values(place, self.seen[place])
        self.seen[place] += len(values)
        return any(mark in value for value in values)

    def check(self):
        """Fail with Canal's own words; skip where a kill has left Canal unable to read on."""
        self.canal.check()
        if self.killed and (line := self.canal.lost()):
            pytest.skip(f"a kill took a table's structure from Canal's own store: {line}")

    def misnamed(self):
        """Rows of the altered table whose columns are not those that the statement before them has left.

        Canal keeps the structures of tables in a store of its own. A kill may take the newest ones from it: then rows come
        with the values of one column under the name of another, and nothing in the messages says so.
        """
        found, shapes = [], None
        for value in self.topics.values("garden"):
            message = json.loads(value)
            if message.get("isDdl"):
                shapes = self.history.shapes.get(message["sql"].strip(), shapes)
            elif shapes and message.get("table") == "orders" and tuple(message["data"][0]) not in shapes:
                found.append(f"{[*message['data'][0]]} after {[*shapes]}")
        return found

    def again(self):
        """How many rows of marks were sent again."""
        marks = Counter(
            row["mark"]
            for value in self.topics.values("garden_marks")
            for row in json.loads(value)["data"] or ()
        )
        return sum(marks.values()) - len(marks)


@pytest.fixture
def sent(tmp_path, started, topics, seed):
    """MariaDB and Canal, which sees the tables made, for it takes no snapshot."""
    try:
        fetched()
    except Missing as missing:
        pytest.skip(str(missing))
    node = started(databases.MariaDB(), "pymysql")
    for topic in ("garden", "rest", *(f"garden_{one}" for one in "plants beds notes orders marks".split())):
        topics.make(topic)
    with Canal(tmp_path / "canal", topics.address, node, INSTANCES) as canal:
        history = History(node.connect(), typed_tables.canal(), seed, "`")
        history.calm = False
        feed = Sent(tmp_path, topics, history, canal)
        for table in (*history.tables, feed.marks):
            history.create(table)
        yield node, feed
        history.connection.close()


def test_canal(spark, broker, sent):
    """After DDL, kills, and what Canal then sends again, a cell that differs would be taken for the source's."""
    node, feed = sent
    history, canal = feed.history, feed.canal
    write(history, 500, 4)
    feed.catch_up()
    for name in INSTANCES:
        feed.run(spark, name)
        feed.compare(spark, name, "garden/")
    canal.stop()
    canal.start()
    write(history, 300, 3)
    history.truncate(history.tables[1])
    write(history, 100, 0)
    feed.catch_up()
    stopped = feed.again()
    time.sleep(3)  # else what Canal keeps of the tables' structures may not be on disk yet
    canal.kill()
    feed.killed = True
    write(history, 200, 2)
    node.stop()
    broker.stop()
    node.start()
    broker.start()
    history.connection = node.connect()
    canal.start()
    write(history, 300, 2)
    feed.catch_up()
    say(f"{stopped} marks were sent again after a stop, {feed.again() - stopped} after a kill")
    assert stopped < feed.again()
    for name in INSTANCES:
        feed.run(spark, name)
    canal.stop()
    write(history, 200, 2)
    canal.start()
    write(history, 200, 2)
    feed.catch_up()
    if misnamed := feed.misnamed():
        pytest.skip(f"Canal named the columns of {len(misnamed)} messages wrongly, such as {misnamed[0]}")
    for name in INSTANCES:
        feed.run(spark, name)
        feed.compare(spark, name, "garden/", declared={"notes"})
