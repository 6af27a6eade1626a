"""One document, shown three ways: metadata, terminal, HTML."""

from __future__ import annotations

import base64
import math
import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mlcost_pipeline.reports import pictures
from mlcost_pipeline.reports.document import SIMULATED, Document, Number, Picture, Table
from mlcost_pipeline.reports.html import as_html, write_html
from mlcost_pipeline.reports.metadata import LIMIT_BYTES, as_metadata, markdown_text, size_bytes, table_markdown
from mlcost_pipeline.reports.terminal import as_text
from mlcost_pipeline.reports.values import Quantity

HOSTILE = "<script>alert('x')</script> | [link](http://evil) \"q\" `c` [red]&\x00\x1b"
DAY = date(2025, 6, 1)
NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)


def _picture(title: str = "Spend by month") -> Picture:
    spend = {"training": [Decimal("3.5"), Decimal("2")], "credit": [Decimal("-1"), Decimal("0")]}
    return pictures.stacked_bars(title, ["2025-05", "2025-06"], spend, unit="USD")


def _document(rows: int = 3) -> Document:
    return Document(
        title="Spend",
        summary="88.6 % of 120.00 USD is attributed, the bound is 85 %.",
        numbers=[
            Number("share_attributed", "share attributed", 0.886, "share", bound="at least 85 %"),
            Number("spend", "spend", Decimal("120"), "USD"),
            Number("cost_per_case", "cost per case", None, "USD"),
            Number("cost_per_click", "cost per click", math.inf, "USD"),
            Number("runs", "runs", 12),
        ],
        tables=[Table("By model", ["model", "spend"], [[f"m{i}", Quantity(Decimal(i), "USD")] for i in range(rows)])],
        pictures=[_picture()],
        links={"report": "/tmp/report.html"},
        ids={"ledger_version": "abc123", "run_id": None},
        marks=(SIMULATED,),
    )


def test_metadata_has_summary_first_and_ids_last() -> None:
    made = as_metadata(_document())
    assert list(made) == [
        "summary", "share_attributed", "spend", "cost_per_case", "cost_per_click", "runs",
        "table", "picture", "report", "ledger_version",
    ]  # fmt: skip
    assert made["summary"].value == "[SIMULATED] 88.6 % of 120.00 USD is attributed, the bound is 85 %."
    assert (made["spend"].kind, made["spend"].value) == ("float", 120.0)
    assert (made["runs"].kind, made["runs"].value) == ("int", 12)
    assert (made["cost_per_case"].kind, made["cost_per_case"].value) == ("text", "unknown")
    assert (made["cost_per_click"].kind, made["cost_per_click"].value) == ("text", "∞ USD")
    assert made["report"].kind == "path"
    assert as_metadata(_document().linked(report="https://x/y"))["report"].kind == "url"


def test_metadata_picture_is_a_whole_svg_in_a_data_uri() -> None:
    shown = as_metadata(_document())["picture"].value
    found = re.fullmatch(r"!\[Spend by month\]\(data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)", shown)
    assert found is not None
    assert ElementTree.fromstring(base64.b64decode(found.group(1))).tag.endswith("svg")


def test_a_long_table_says_how_many_rows_are_left_out() -> None:
    shown = table_markdown(_document(rows=57).tables[0])
    assert shown.count("\n| m") == 21  # 20 rows and the titles
    assert shown.endswith("… and 37 more rows of 57; all of them are in the full report.")
    assert "more rows" not in table_markdown(_document(rows=20).tables[0])


def test_metadata_leaves_the_picture_out_before_it_grows_too_large() -> None:
    huge = replace(_picture(), svg="<svg>" + "x" * LIMIT_BYTES + "</svg>")
    made = as_metadata(replace(_document(), pictures=[huge]))
    assert size_bytes(made) <= LIMIT_BYTES
    assert made["picture"].value == "Spend by month: the picture is too large for this place; it is in the full report."


def test_metadata_that_cannot_be_made_small_is_refused() -> None:
    with pytest.raises(ValueError, match="bytes of metadata"):
        as_metadata(replace(_document(), ids={f"id_{i}": "x" * 2000 for i in range(60)}))


def test_a_wide_table_of_long_cells_still_fits() -> None:
    wide = Table("wide", [f"c{i}" for i in range(30)], [["é" * 500] * 30 for _ in range(40)])
    assert size_bytes(as_metadata(replace(_document(), tables=[wide]))) <= LIMIT_BYTES


def test_one_key_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="the same key twice: spend"):
        Document("t", "s.", numbers=[Number("spend", "a", 1), Number("spend", "b", 2)])
    with pytest.raises(ValueError, match="'spend' is used twice"):
        as_metadata(replace(_document(), ids={"spend": "x"}))
    with pytest.raises(ValueError, match="one sentence on one line"):
        Document("t", " ")


class _Page(HTMLParser):
    """Tags in balance, and every address that a browser would fetch by itself."""

    void = frozenset({"meta", "br", "link", "img", "hr", "input"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [str(v) for k, v in attrs if k in ("src", "srcset", "data", "action", "xlink:href")]
        if tag in ("link", "script", "iframe", "object", "img", "image", "use"):
            self.fetched.append(tag)
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_html_is_whole_and_fetches_nothing() -> None:
    page = as_html([_document(), replace(_document(), title="Spend")], "Report")
    parsed = _Page(page)
    assert parsed.open == []
    assert parsed.fetched == []
    assert "script" not in parsed.tags
    assert not re.search(r"url\(|@import", page)
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) == {"http://www.w3.org/2000/svg"}


def test_html_has_contents_marks_dark_print_and_phone() -> None:
    page = as_html([_document(), replace(_document(), title="Spend")], "Report")
    assert '<a href="#spend">' in page and '<a href="#spend-2">' in page
    assert page.count('<section id="spend') == 2
    assert page.count('role="note">SIMULATED') == 3
    assert "prefers-color-scheme:dark" in page and "@media print" in page
    assert "details::details-content" in page, "folded tables must stand open on paper"
    assert 'name="viewport"' in page and ".scroll{overflow-x:auto" in page


def test_html_shows_every_picture_also_as_a_table() -> None:
    page = as_html([_document()], "Report")
    figures = re.findall(r"<figure>.*?</figure>", page)
    assert len(figures) == 1
    assert "<svg" in figures[0] and "<details>" in figures[0]
    assert '<td class="d">2025-05</td><td class="n">3.50 USD</td><td class="n">−1.00 USD</td>' in figures[0]


def test_hostile_names_stay_text_everywhere() -> None:
    doc = Document(
        title=HOSTILE,
        summary=HOSTILE,
        numbers=[Number("n", HOSTILE, 1, HOSTILE, bound=HOSTILE)],
        tables=[Table(HOSTILE, [HOSTILE], [[HOSTILE]])],
        pictures=[
            pictures.bars(HOSTILE, [(HOSTILE, 3)], columns=(HOSTILE, "n")),
            pictures.lines_over_days(HOSTILE, [DAY], {HOSTILE: [1.0]}, bound=(HOSTILE, 2.0)),
            pictures.timeline(HOSTILE, [pictures.Span(HOSTILE, NOON, None, HOSTILE, HOSTILE)], until=NOON),
        ],
        links={HOSTILE: "javascript:alert(1)"},
        ids={"run_id": HOSTILE},
        notes=[HOSTILE],
    )
    page = as_html([doc], HOSTILE)
    parsed = _Page(page)
    assert "script" not in parsed.tags and parsed.open == []
    assert 'href="javascript' not in page
    assert "\x00" not in page and "\x1b" not in page
    for picture in doc.pictures:
        ElementTree.fromstring(picture.svg)
    assert "<script>" not in as_metadata(doc)["table"].value
    shown = as_text(doc)
    assert "[red]" in shown and "\x1b" not in shown


def test_markdown_text_is_one_cell() -> None:
    assert markdown_text("a|b\n**c** <i>") == "a\\|b \\*\\*c\\*\\* &lt;i&gt;"


def test_the_report_replaces_the_old_one_at_once(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "report.html"
    write_html(path, [_document()], "First")
    write_html(path, [_document()], "Second")
    assert "Second" in path.read_text(encoding="utf-8")
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]


def test_terminal_shows_sentence_numbers_and_table() -> None:
    shown = as_text(_document(rows=30))
    assert "[SIMULATED]" in shown and "88.6 % of 120.00 USD is attributed" in shown
    assert "cost per case: unknown" in shown and "cost per click: ∞ USD" in shown
    assert "… and 18 more rows of 30" in shown


def test_an_empty_table_says_why() -> None:
    doc = replace(_document(), tables=[Table("Runs", ["run"], [], empty="no bill was imported")])
    assert "no bill was imported" in as_html([doc], "t")
    assert "no bill was imported" in as_metadata(doc)["table"].value
    assert "no bill was imported" in as_text(doc)


def test_a_row_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="row 0: 1 cells under 2 columns"):
        Table("t", ["a", "b"], [["x"]])


def test_pictures_are_small_and_equal_byte_for_byte() -> None:
    days = [DAY + timedelta(days=i) for i in range(2000)]
    series = {f"s{k}": [math.sin(i / 9 + k) for i in range(2000)] for k in range(4)}
    first = pictures.lines_over_days("many", days, series, unit="share")
    assert first == pictures.lines_over_days("many", days, series, unit="share")
    assert len(first.svg.encode()) < 25_000
    assert len(first.table.rows) == 2000


def test_a_gap_in_a_line_stays_a_gap() -> None:
    days = [DAY + timedelta(days=i) for i in range(5)]
    made = pictures.lines_over_days("gap", days, {"psi": [0.1, 0.2, None, 0.3, math.nan]})
    assert made.svg.count("<path") == 1
    assert made.svg.count("<circle") == 1
    assert made.table.rows[2][1] == Quantity(None, "")


def test_the_timeline_shows_waiting_and_the_deadline() -> None:
    hour = timedelta(hours=1)
    spans = [
        pictures.Span("attempt 1", NOON, NOON + hour, "spot", "interrupted"),
        pictures.Span("attempt 2", NOON + hour, NOON + 2 * hour, "waiting"),
        pictures.Span("attempt 2", NOON + 2 * hour, None, "on-demand"),
    ]
    made = pictures.timeline("job", spans, until=NOON + 3 * hour, deadline=NOON + 6 * hour)
    assert "deadline after 6 h" in made.svg
    assert "attempt 1, spot: 60 min; interrupted" in made.svg
    assert made.table.rows[2][3] == "still going on"


@pytest.mark.parametrize(
    "empty",
    [
        pictures.lines_over_days("e", [], {}),
        pictures.stacked_bars("e", [], {}),
        pictures.bars("e", [], columns=("a", "b")),
        pictures.timeline("e", [], until=NOON),
    ],
)
def test_a_picture_of_nothing_is_still_a_picture(empty: Picture) -> None:
    ElementTree.fromstring(empty.svg)
    assert empty.table.empty


def test_a_stage_has_the_same_colour_in_every_picture() -> None:
    named = pictures.NAMED
    one = pictures.stacked_bars("a", ["2025-01"], {"serving": [1], "training": [2]})
    two = pictures.stacked_bars("b", ["2025-01"], {"features": [1], "other": [3], "training": [2]})
    for made in (one, two):
        assert f'fill="{named["training"]}"><title>2025-01, training: 2' in made.svg
    taken = (named["features"], named["training"])
    assert not any(f'fill="{colour}"><title>2025-01, other' in two.svg for colour in taken)


def test_a_column_is_kept_where_a_shorter_name_makes_room_for_it() -> None:
    rows = [["a name of about forty letters, no more so", "1 234.50 USD", "29.4 %", "0.5 h → 1.5 h"]]
    table = Table("costs", ["cause", "amount", "share", "before and after"], rows)
    shown = as_text(Document("t", "s", tables=[table]), width=80)
    assert (
        "0.5 h → 1.5 h" in shown
        and "a name of about forty" in shown
        and "more so" in shown
        and "more column" not in shown
    )
