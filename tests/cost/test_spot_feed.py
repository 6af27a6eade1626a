"""The spot data feed: read as an estimate, replaced by the bill, refused as a bill."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from mlcost_pipeline.cost.bills.spot_feed import read_spot_feed
from mlcost_pipeline.cost.deliveries import import_bill
from mlcost_pipeline.cost.price_check import check_runs
from mlcost_pipeline.cost.prices import billed_runs, unbilled
from mlcost_pipeline.cost.spot_feed_estimates import SpotFeed, spot_feed_prices
from mlcost_pipeline.cost.waiting import bills_waiting
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import NOON, past_run, two_models
from tests.cost.ledgers import part, write_ledger

HEADER = (
    "#Version: 1.0\n#Fields: Timestamp UsageType Operation InstanceID MyBidID MyMaxPrice MarketPrice Charge Version\n"
)
FIRST = "111122223333.2026-03-10-12.001.b959dbc6.gz"


def feed_line(charge: str, *, at: str = "12:00:00", market: str = "0.210", instance: str = "i-1", **more: str) -> str:
    fields = {"time": f"2026-03-10 {at} UTC", "unit": "USD", "version": "1", **more}
    return "\t".join(
        [
            fields["time"], "EU-SpotUsage:p3.2xlarge", "RunInstances:SV001", instance, "sir-1", "0.900 USD",
            f"{market} {fields['unit']}", f"{charge} {fields['unit']}", fields["version"],
        ]
    )  # fmt: skip


def write_feed(path: Path, lines: Sequence[str], *, header: str = HEADER) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = (header + "".join(f"{line}\n" for line in lines)).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def test_a_line_is_an_hour_of_an_instance(tmp_path: Path) -> None:
    place = write_feed(tmp_path / FIRST, [feed_line("0.210"), feed_line("0.004", instance="i-2", market="0.004")])
    hours = read_spot_feed(place)
    assert [(hour.instance_id, hour.charge, hour.rate) for hour in hours] == [
        ("i-1", Decimal("0.210"), Decimal("0.210")),
        ("i-2", Decimal("0.004"), Decimal("0.004")),
    ]
    assert (hours[0].hour_start, hours[0].hour_end) == (NOON, NOON + timedelta(hours=1))
    assert [hour.instance_id for hour in read_spot_feed(place, {"i-2"})] == ["i-2"]


def test_a_charge_is_money_for_what_ran_and_not_a_rate(tmp_path: Path) -> None:
    """Two minutes at 0.210 an hour are charged 0.007; read as a rate that would be a thirtieth of the price."""
    [hour] = read_spot_feed(write_feed(tmp_path / FIRST, [feed_line("0.007")]))
    price = SpotFeed({"i-1": (hour,)}).per_hour("i-1", NOON, NOON + timedelta(minutes=2))
    assert price is not None
    assert (price.amount, price.source) == (Decimal("0.210"), "EC2 spot data feed")


def test_an_instance_of_fixed_duration_is_charged_more_than_the_market(tmp_path: Path) -> None:
    [hour] = read_spot_feed(write_feed(tmp_path / FIRST, [feed_line("0.495", market="0.038")]))
    assert hour.rate == Decimal("0.495")


def test_an_hour_in_several_files_counts_once_in_its_newest_version(tmp_path: Path) -> None:
    write_feed(tmp_path / FIRST, [feed_line("0.210"), feed_line("0.100", at="13:00:00", version="2")])
    write_feed(tmp_path / "111122223333.2026-03-10-13.001.aa.gz", [feed_line("0.220")])
    write_feed(tmp_path / "111122223333.2026-03-10-13.002.bb.gz", [feed_line("0.300", at="13:00:00")])
    assert [hour.charge for hour in read_spot_feed(tmp_path)] == [Decimal("0.220"), Decimal("0.100")]


def test_an_hour_ends_where_the_next_of_its_instance_begins(tmp_path: Path) -> None:
    lines = [feed_line("0.100"), feed_line("0.100", at="12:30:00"), feed_line("0.100", at="12:40:00", instance="i-2")]
    ends = [hour.hour_end - NOON for hour in read_spot_feed(write_feed(tmp_path / FIRST, lines))]
    assert ends == [timedelta(minutes=30), timedelta(minutes=90), timedelta(minutes=100)]


def test_prices_over_several_hours_are_weighed_by_time_and_reach_over_what_is_late(tmp_path: Path) -> None:
    lines = [feed_line("0.100", market="0.100"), feed_line("0.400", market="0.400", at="13:00:00")]
    feed = SpotFeed({"i-1": tuple(read_spot_feed(write_feed(tmp_path / FIRST, lines)))})

    def price(resource: str, first: float, last: float) -> Decimal | None:
        found = feed.per_hour(resource, NOON + timedelta(hours=first), NOON + timedelta(hours=last))
        return None if found is None else found.amount

    assert price("i-1", 0.5, 2) == Decimal("0.3")  # half an hour at 0.1, an hour at 0.4
    assert price("i-1", 1, 5) == Decimal("0.400")  # the feed is three hours behind
    assert price("i-1", 4, 5) == Decimal("0.400")
    assert price("i-1", -2, -1) == Decimal("0.100")
    assert price("i-9", 0, 1) is None


def test_the_feed_prices_a_run_before_any_list_price_until_the_bill_replaces_it(
    tmp_path: Path, warehouse: Warehouse
) -> None:
    """opencost#882: the feed said 0.007, the bill says 0.210; the estimate there was never corrected."""
    write_feed(tmp_path / "feed" / FIRST, [feed_line("0.007", market="0.007"), feed_line("9.9", instance="i-other")])
    settings = two_models(bills=[{"path": str(tmp_path / "feed"), "format": "spot_feed"}], prices={"i-1": "3.06"})
    past_run(warehouse, "r1", resource="i-1", pool="spot")
    [estimate] = unbilled(warehouse, settings, NOON)
    assert (estimate.amount, estimate.source) == (Decimal("0.007"), "estimate: EC2 spot data feed")
    write_ledger(warehouse, part("0.210", run="r1", hours=1, resource="i-1"))
    assert unbilled(warehouse, settings, NOON) == []
    assert billed_runs(warehouse) == {"r1": Decimal("0.210")}
    [check], _ = check_runs(warehouse, settings, NOON)
    assert (check.estimated, check.billed, check.difference) == (Decimal("0.007"), Decimal("0.210"), Decimal("0.203"))


def test_no_feed_and_an_empty_one_price_nothing(tmp_path: Path) -> None:
    assert spot_feed_prices(two_models()) is None
    (tmp_path / "feed").mkdir()
    for place in ("feed", "not-yet-there"):
        named = two_models(bills=[{"path": str(tmp_path / place), "format": "spot_feed"}])
        assert spot_feed_prices(named) == SpotFeed({})


def test_a_feed_in_another_currency_prices_nothing(tmp_path: Path) -> None:
    write_feed(tmp_path / FIRST, [feed_line("0.210", unit="EUR")])
    settings = two_models(bills=[{"path": str(tmp_path), "format": "spot_feed"}])
    with pytest.raises(BillError, match="charged in EUR, and currency: is USD"):
        spot_feed_prices(settings)


def test_the_feed_is_never_taken_over_as_a_bill(tmp_path: Path, warehouse: Warehouse) -> None:
    write_feed(tmp_path / "feed" / FIRST, [feed_line("0.210")])
    settings = two_models(bills=[{"path": str(tmp_path / "feed"), "format": "spot_feed"}])
    assert bills_waiting(warehouse, settings) == []
    with pytest.raises(BillError, match="an estimate, not a bill"):
        import_bill(warehouse, tmp_path / "feed", format="spot_feed")


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([feed_line("NaN")], r"line 3, field Charge: expected an amount such as 0\.210 USD, found 'NaN USD'"),
        ([feed_line("-0.1")], "line 3, field Charge"),
        ([feed_line("0.1"), feed_line("0.1", at="25:00:00")], "line 4, field Timestamp"),
        ([feed_line("0.1", instance=" ")], "line 3, field InstanceID: is empty"),
        ([feed_line("0.1").replace("0.1 USD", "0.1 EUR")], "Charge is in EUR and MarketPrice in USD"),
        ([feed_line("0.1").rpartition("\t")[0]], "expected 9 fields, found 8; is the file cut off?"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, lines: list[str], text: str) -> None:
    with pytest.raises(BillError, match=text):
        read_spot_feed(write_feed(tmp_path / FIRST, lines))


def test_files_that_are_cut_off_or_no_feed_are_refused(tmp_path: Path) -> None:
    whole = write_feed(tmp_path / FIRST, [feed_line("0.210")])
    whole.write_bytes(whole.read_bytes()[:-9])
    with pytest.raises(BillError, match=r"b959dbc6\.gz.*cut off"):
        read_spot_feed(whole)
    with pytest.raises(BillError, match="line 1: no #Fields line"):
        read_spot_feed(write_feed(tmp_path / "a.tsv", [feed_line("0.210")], header=""))
    with pytest.raises(BillError, match="field InstanceID is missing"):
        read_spot_feed(write_feed(tmp_path / "b.tsv", [], header=HEADER.replace("InstanceID ", "")))
    with pytest.raises(BillError, match="is not there"):
        read_spot_feed(tmp_path / "nowhere")
