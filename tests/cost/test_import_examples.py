"""The worked examples of the FOCUS specification: small bills whose right answer is in its text."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from mlcost_pipeline.cost.slots import money_sum
from tests.cost.billing import whole

#: Sums of the worked examples: a commitment's fee is billed, and the usage that it covers has its effective cost.
EXAMPLES = {
    "commitment_discount_purchase_scenario_1": ("8760", "0", ["Fee"]),
    "commitment_discount_usage_scenario_1": ("0", "1", ["Used"]),
    "commitment_discount_usage_scenario_2": ("0", "1", ["Unused"]),
    "commitment_discount_usage_scenario_3": ("0", "1", ["Used", "Unused"]),
    "one_hundred_percent_utilization_with_commitment_discount_flexibility_with_1_resource": (
        "2.75", "2.75", ["Fee", "Used", None],
    ),
    "one_hundred_percent_utilization_with_commitment_discount_flexibility_with_2_resources": (
        "2", "2", ["Fee", "Used", "Used"],
    ),
    "one_hundred_percent_utilization_without_commitment_discount_flexibility": ("1.5", "1.5", ["Fee", "Used"]),
}  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_examples_of_the_specification_have_its_answers(billing_data: Path, tmp_path: Path, name: str) -> None:
    """The examples leave out whose bill it is and its currency; nothing else of them is touched."""
    header, *rows = (billing_data / "focus_spec_examples" / f"{name}.csv").read_text().split("\n")
    named = [f"{header},BillingAccountId,BillingCurrency", *(f"{row},a,USD" for row in rows if row.strip())]
    (tmp_path / "bill.csv").write_text("\n".join(named) + "\n")
    read = whole(tmp_path / "bill.csv")
    billed, effective, statuses = EXAMPLES[name]
    assert money_sum(read.lines["billed"].to_pylist()) == Decimal(billed)
    assert money_sum(read.lines["effective"].to_pylist()) == Decimal(effective)
    assert (read.lines["commitment_status"].to_pylist(), read.warnings) == (statuses, [])
