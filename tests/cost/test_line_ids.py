"""Ids of lines and slots: equal for what is equal, other for what is other, the same on every machine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from mlcost_pipeline.cost.bills.contents import LINE
from mlcost_pipeline.cost.line_ids import SLOT_COLUMNS, identified

JUNE = datetime(2025, 6, 1, tzinfo=UTC)
WORDS = st.sampled_from([None, "", "a", "b", "ab", "+a", "é"])
MONEY = st.sampled_from([None, "0", "1", "-1", "0.000000000000000001", "18446744073.709551616", "-0.5"])


def lines(*rows: dict[str, Any]) -> pa.RecordBatch:
    whole = [
        {
            "line": n, "account": "acct", "period": "2025-06", "charge_start": JUNE,
            "charge_end": JUNE + timedelta(hours=1), "category": "Usage", "tags_text": "{}", "currency": "USD",
            "billed": Decimal(1), "effective": Decimal(1), "allocation": "origin", **row,
        }
        for n, row in enumerate(rows, start=2)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(whole, schema=LINE)


@st.composite
def charges(draw: st.DrawFn) -> dict[str, Any]:
    row: dict[str, Any] = {
        name: draw(WORDS) for name in ("resource_id", "charge_class", "service", "sku", "invoice_id")
    }
    row["charge_end"] = JUNE + timedelta(hours=draw(st.integers(1, 3)))
    row["period_closed"] = draw(st.sampled_from([None, True, False]))
    for name in ("billed", "list", "quantity"):
        amount = draw(MONEY)
        row[name] = None if amount is None else Decimal(amount)
    return row


@given(st.lists(charges(), min_size=1, max_size=30))
def test_lines_share_a_slot_if_and_only_if_they_agree_in_what_makes_one(rows: list[dict[str, Any]]) -> None:
    batch = lines(*rows)
    made = identified(batch, 4)
    whole = batch.to_pylist()
    slots = [(*(row[name] for name in SLOT_COLUMNS), row["list"] is None) for row in whole]
    every = [str(sorted((key, value) for key, value in row.items() if key not in ("line", "tags"))) for row in whole]
    assert len(set(made["slot_id"].to_pylist())) == len(set(slots))
    both = list(zip(made["low"].to_pylist(), made["high"].to_pylist(), strict=True))
    assert len(set(both)) == len(set(every))
    assert len({*zip(slots, made["slot_id"].to_pylist(), strict=True)}) == len(set(slots))
    assert set(made["bucket"].to_pylist()) <= set(range(4))


def test_an_id_is_the_same_on_every_machine_and_wherever_the_line_is_in_a_file() -> None:
    alone = identified(lines({"resource_id": "i-1"}), 8)
    among = identified(lines({"resource_id": "i-0"}, {"resource_id": "i-1"}, {}).slice(1), 8)
    assert alone["slot_id"][0].as_py() == among["slot_id"][0].as_py() == "2f282631048b3b4901cbe973"
    assert alone["low"][0] == among["low"][0] and alone["high"][0] == among["high"][0]
    assert alone["bucket"][0] == among["bucket"][0]


def test_a_resource_keeps_its_lines_together() -> None:
    made = identified(lines(*({"resource_id": f"i-{n % 5}", "service": str(n)} for n in range(50))), 1000)
    assert len(set(zip(made["resource_id"].to_pylist(), made["bucket"].to_pylist(), strict=True))) == 5


def test_hashes_of_like_slots_are_spread_evenly() -> None:
    rows = [
        {"resource_id": f"i-{r}", "charge_end": JUNE + timedelta(hours=h)} for r in range(200) for h in range(1, 500)
    ]
    made = identified(lines(*rows), 1)
    assert len(set(made["slot_id"].to_pylist())) == len(rows)
    first_bits = {slot[:8] for slot in made["slot_id"].to_pylist()}  # 32 bits: one meeting is due by chance
    assert len(rows) - len(first_bits) < 10
