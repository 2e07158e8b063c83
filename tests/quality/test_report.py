"""The report: one file that says the right thing, in words, safely, and needs nothing else."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser

import pytest
from markupsafe import escape

from ingest.quality import report_model as f
from ingest.quality.catalogue import LAST_RUN
from ingest.quality.report import Complaint, page, render, spark, state_word, title

EVIL = "<script>alert('x')</script>\"&`"
VOID = {"meta", "br", "link", "img", "input", "hr", "circle", "polyline", "rect", "path", "use"}


class Reader(HTMLParser):
    """Collects tags, texts and attributes, and complains about a page that does not close what it opens."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert tag == self.open.pop(), f"</{tag}> does not close what is open: {self.open[-3:]}"

    def handle_data(self, data):
        self.texts.append(data)

    def named(self, tag):
        """The attributes of every tag of that name."""
        return [attributes for name, attributes in self.tags if name == tag]


def test_every_tag_is_closed(made):
    """A browser repairs a broken page by moving cells to where they mean something else."""
    assert [] == Reader(render(page(made(14)))).open


def test_nothing_is_loaded(made):
    """A page that loads anything is blank in a closed network, and shows others who reads it."""
    text = render(page(made(14)))
    read = Reader(text)
    assert {"script", "link", "img", "iframe", "object"}.isdisjoint(tag for tag, _ in read.tags)
    places = [
        value for _, attributes in read.tags for name, value in attributes.items() if name in ("href", "src")
    ]
    assert all(value.startswith("#") for value in places)
    assert [] == re.findall(r"https?:|url\(|@import|//[a-z]", text)


def test_links_lead_somewhere(made):
    """A problem whose link does nothing leaves the reader searching 500 tables."""
    read = Reader(render(page(made(14))))
    ids = {attributes["id"] for _, attributes in read.tags if "id" in attributes}
    wanted = {attributes["href"][1:] for _, attributes in read.tags if "href" in attributes}
    assert set() == wanted - ids
    assert len(ids) == len([1 for _, attributes in read.tags if "id" in attributes])


def evil_facts(made):
    """Every text that comes from data is hostile."""
    facts = made(6)
    facts.pipeline = facts.lake = facts.file = EVIL
    for table in facts.tables:
        table.name, table.keys, table.losses, table.explain = EVIL, (EVIL,), (EVIL,), EVIL
        table.columns = [f.ColumnFact(EVIL, EVIL + "2", EVIL, EVIL, EVIL, key=True, misfits=1)]
        table.ddl = [f.DdlFact(1, EVIL, EVIL, EVIL, facts.now, pending=True)]
        table.batches[0].message, table.batches[0].state = EVIL, "failed"
        for check in table.checks:
            check.state, check.detail, check.failing, check.column = "fail", EVIL, (EVIL,), EVIL
            check.asked = lambda: EVIL
    facts.sources[0].name = facts.sources[0].format = EVIL
    facts.runs[0].alarms = [f.AlarmFact(EVIL, EVIL)]
    facts.rejects = [f.RejectFact(EVIL, EVIL, EVIL, EVIL, 1, EVIL, EVIL)]
    facts.books[0].source = EVIL
    return facts


def test_hostile_texts_stay_texts(made):
    """A script in a table, a column or a value would run in the browser of every reader."""
    text = render(page(evil_facts(made)))
    read = Reader(text)
    assert "script" not in {tag for tag, _ in read.tags}
    assert "<script" not in text.lower()
    assert [] == [name for _, attributes in read.tags for name in attributes if name.startswith("on")]
    assert any("<script>alert('x')</script>" in one for one in read.texts)


def test_what_cannot_be_seen_is_shown(made):
    """A name with a NUL makes the page a binary; one that turns the writing around reads as another."""
    facts = made(3)
    facts.tables[0].name = "a\x00\x1b[31m\u202eb"
    text = render(page(facts))
    assert "a\\u0000\\u001b[31m\\u202eb" in text
    assert not {char for char in text if ord(char) < 32} - {"\n", "\t"}


def test_states_are_written_in_words(made):
    """A reader who sees no colours must still see which table fails."""
    facts = made(14)
    rows = re.findall(r"<tr><td class=\"state\">.*?</tr>", render(page(facts)), re.DOTALL)
    front = {row.fact.name: row.word for row in page(facts).rows}
    assert {"Held", "Failing", "Warning", "Good"} == set(front.values())
    for name, word in front.items():
        assert any(f">{word}</span>" in row and f">{name}</a>" in row for row in rows)


def test_problems_come_first(made):
    """The wrong table must come before 400 good ones."""
    lights = [row.light for row in page(made(14)).rows]
    assert sorted(lights, key=["bad", "warn", "none", "good"].index) == lights


def test_an_alarm_is_left_out_only_if_its_own_table_is_listed(made):
    """The alarm of `hub.courier_old` vanished behind the complaint of `hub.courier`, with which its sentence begins."""
    facts = made(14)
    other = f.AlarmFact("hub.courier_old: its table is gone", "hub.courier_old")
    facts.runs[0].alarms = [other, f.AlarmFact("In other words: no key", "hub.courier")]
    alarms = [problem.text for problem in page(facts).problems if problem.subject == LAST_RUN]
    assert [other.text] == alarms


def test_an_alarm_of_a_source_is_listed_beside_another_complaint_of_it(made):
    """A file that shrank fails each run, and `status` said only that there was an alarm: its source had a reject, too."""
    facts = made(14)
    source = facts.sources[0]
    source.checks = [f.CheckFact("reject_rate", "warn", 0.1, "warn", 0.0)]
    alarm = f.AlarmFact(f"source {source.name}: bins.jsonl shrank", source.name)
    facts.runs[0].alarms = [alarm]
    listed = page(facts).problems
    assert alarm.text in {problem.text for problem in listed}
    assert f"source {source.name}" in {problem.subject for problem in listed}


def test_an_alarm_says_since_when_runs_have_raised_it(made):
    """A file that was rewritten fails each run: its alarm was the only problem without a beginning."""
    facts = made(14)
    alarm = f.AlarmFact("source bins: bins.jsonl was rewritten after it was read", "bins")
    for run, alarms in zip(facts.runs, ([alarm], [f.AlarmFact("another"), alarm], [], [alarm]), strict=False):
        run.alarms = alarms
    assert len(facts.runs) > 3
    listed = [problem.since for problem in page(facts).problems if problem.text == alarm.text]
    assert [facts.runs[1].at] == listed


def test_tables_have_captions_and_scopes(made):
    """Without them a reader's voice says numbers and not what they count."""
    read = Reader(render(page(made(14))))
    tags = [tag for tag, _ in read.tags]
    assert tags.count("table") == tags.count("caption") > 10
    assert all(one.get("scope") or one.get("class") == "w" for one in read.named("th"))
    assert all(one.get("aria-label") for one in read.named("div") if one.get("role") == "region")
    assert {"lang": "en"} == read.named("html")[0]


@pytest.mark.parametrize(
    ("spoil", "headline"),
    [
        (lambda facts: None, "2 tables of 6 cannot be trusted right now."),
        (lambda facts: facts.tables.clear(), "There is no table yet."),
        (lambda facts: facts.tables.__delitem__(slice(1, 5)) or facts.rejects.clear(), "All 2 tables can be trusted."),
        (
            lambda facts: facts.tables.__delitem__(slice(1, 5)),
            "All 2 tables agree with what could be read; 12 messages could not be, and may belong to any table.",
        ),
        (lambda facts: facts.tables.__delitem__(slice(1, 3)), "2 tables of 4 need a look."),
        (lambda facts: facts.tables.__delitem__(slice(1, 6)) or facts.rejects.clear(), "The table can be trusted."),
        (lambda facts: [table.checks.clear() for table in facts.tables[3:]] and facts.tables.__delitem__(slice(3)), "Nothing has been checked yet."),
    ],
)  # fmt: skip
def test_the_headline_says_what_is(made, spoil, headline):
    """The headline is all that most people read."""
    facts = made(6)
    spoil(facts)
    assert headline == page(facts).headline
    Reader(render(page(facts)))


def test_the_headline_knows_what_no_check_has_found(made):
    """The page said that all tables can be trusted, above the list that says that one is excluded and silver is lost."""
    facts = made(6)
    del facts.tables[1:5]
    facts.rejects.clear()
    first, second = (table.name for table in facts.tables)
    excluded = Complaint("warn", first, "tables", "The table is excluded", "it gets no more rows")
    whole = page(facts, [excluded])
    assert "1 table of 2 needs a look." == whole.headline
    assert {first: "Warning", second: "Good"} == {row.fact.name: row.word for row in whole.rows}
    lost = Complaint("bad", "lake", "tables", "it is not whole", "changes is gone")
    assert (
        "1 problem of the lake needs the operator; no table is known to be wrong."
        == page(facts, [lost]).headline
    )


def test_an_empty_lake_makes_a_page(made):
    """The first look at a new pipeline must not be a traceback."""
    facts = f.Facts("new", "new.yaml", "/lake", made(1).now)
    assert "There is no table yet." in render(page(facts))


def test_an_expectation_that_cannot_be_judged_is_no_failure(made):
    """A missing column is a mistake in the pipeline file, not in the data."""
    facts = made(1)
    facts.tables[0].checks.append(
        f.CheckFact(
            "expect_column_values_to_be_unique",
            "error",
            0.0,
            "warn",
            None,
            "nope",
            "the column does not exist",
        )
    )
    assert "warn" == page(facts).rows[0].light
    assert ">No answer</td>" in render(page(facts)).replace("</svg>", ">")


def test_a_check_shows_its_query_and_keys(made):
    """A failed check is of no help without the rows that failed."""
    texts = " ".join(Reader(render(page(made(14)))).texts)
    assert '{"id":4077}' in texts
    assert "max_by(op, order_key)" in texts


def test_five_hundred_tables_stay_small(made):
    """A page of tens of megabytes opens nowhere."""
    facts = made(500)
    began = time.process_time()
    text = render(page(facts))
    assert 3_000_000 > len(text.encode())
    assert 20 > time.process_time() - began  # seconds of the processor


def test_what_every_table_passes_is_said_once(made):
    """A reader of a table must find each check that it passed, with its number, or the list that names it."""
    facts = made(200)
    text = render(page(facts))
    said, tables = text.split("Every table that was checked passes: ")[1].split(".</p>", 1)
    common = said.split("; ")
    for check in facts.tables[7].checks:
        claim = str(escape(title(check)))
        everywhere = check.check not in ("missing_rows", "cell_rejects", "ddl_pending") and not check.observed
        assert everywhere == (claim in common), claim
        assert everywhere or tables.count(claim) >= 196
    assert [] == Reader(text).open


@pytest.mark.parametrize("values", [(), (1.0,), (3.0, 3.0, 3.0)])
def test_no_line_without_change(values):
    """Flat lines next to every number would hide the ones that move."""
    assert "" == spark(values)


def test_a_line_goes_up_where_numbers_do():
    """An upside-down trend says the opposite."""
    ys = [
        float(pair.split(",")[1]) for pair in re.search('points="([^"]*)"', spark((1.0, 2.0, 9.0)))[1].split()
    ]
    assert ys == sorted(ys, reverse=True)
    assert ys[0] > ys[-1]


def test_a_number_without_a_limit_is_not_judged(made):
    """The word Passed next to an age of 935 days would suggest that the newest change is recent."""
    facts = made(6)
    facts.tables = facts.tables[:1]
    check = facts.tables[0].check("freshness")
    check.limit, check.observed = None, 935 * 86400.0
    text = render(page(facts))
    assert "Age of the newest change" in text
    assert "Measured" == state_word(check)
    check.limit = 3600.0
    assert "Passed" == state_word(check)


def test_a_mirror_written_after_its_check_is_not_called_good(made):
    """The report would show the old numbers as present ones."""
    facts = made(6)
    facts.tables = facts.tables[:1]
    facts.tables[0].stale = True
    assert ["Changed since its check"] == [row.word for row in page(facts).rows]
