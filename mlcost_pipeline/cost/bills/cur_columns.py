"""The columns of AWS Cost and Usage Reports, CUR 2.0 and legacy, under one set of names: those of CUR 2.0.

Definitions: AWS Data Exports user guide, "Cost and Usage Report (CUR) 2.0" and "Data dictionary" of legacy reports.
Blended costs are not read at all: they are averages over an organisation that nobody is billed
(cloud-intelligence-dashboards#860).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcost_pipeline.cost.bills.files import columns_of
from mlcost_pipeline.errors import BillError

REQUIRED = (
    "bill_payer_account_id", "bill_billing_period_start_date", "line_item_line_item_type", "line_item_currency_code",
    "line_item_unblended_cost",
)  # fmt: skip
TIMES = ("line_item_usage_start_date", "line_item_usage_end_date")
INTERVAL = "identity_time_interval"
TAGS_COLUMN = "resource_tags"
RESOURCE = "line_item_resource_id"
_ACTIVATE = (
    "no cost can be attributed by tag; activate the cost allocation tags mlcost_run, mlcost_model and mlcost_stage in "
    "the billing console"
)
#: Columns that an export may lack, what cannot be told without them, and how to have them.
ABSENT = {
    "bill_invoice_id": "whether the period is final cannot be told, so its figures stay provisional",
    "line_item_usage_account_id": "accounts of the organisation are not told apart",
    "line_item_product_code": "services are not shown",
    "line_item_usage_type": "spot and on-demand usage are not told apart",
    "line_item_usage_amount": "quantities are not shown",
    "line_item_line_item_description": "descriptions are not shown, and cancelled Savings Plans not recognised by them",
    "pricing_public_on_demand_cost": "savings against the list price are not shown",
    "pricing_unit": "units of quantities are not shown",
    "product_region_code": "regions are not shown",
    "product_sku": "SKUs are not shown",
}
ABSENT_CUR2 = {
    RESOURCE: "no cost can follow a resource to its runs, only tags can; set INCLUDE_RESOURCES to TRUE in the table "
    "configuration of the data export",
    TAGS_COLUMN: f"{_ACTIVATE} and select resource_tags in the data export",
}
ABSENT_LEGACY = {
    RESOURCE: "no cost can follow a resource to its runs, only tags can; create the report with resource ids "
    "(AdditionalSchemaElements RESOURCES); a CUR 2.0 data export has them with INCLUDE_RESOURCES",
    TAGS_COLUMN: _ACTIVATE,
}
_MORE = (
    INTERVAL, "line_item_net_unblended_cost", "pricing_purchase_option", "product_servicecode", "product_region",
    "reservation_effective_cost", "reservation_reservation_a_r_n", "reservation_unused_recurring_fee",
    "reservation_unused_amortized_upfront_fee_for_billing_period", "savings_plan_savings_plan_a_r_n",
    "savings_plan_savings_plan_effective_cost", "savings_plan_total_commitment_to_date",
    "savings_plan_used_commitment", "split_line_item_parent_resource_id",
)  # fmt: skip
_READ = frozenset([*REQUIRED, *TIMES, *ABSENT, *_MORE, RESOURCE, TAGS_COLUMN])
_SLASH_TAG, _FLAT_TAG = "resourceTags/", "resource_tags_"


@dataclass(frozen=True)
class Layout:
    """Where a file has what is read of it: its own column for each CUR 2.0 name, and for each tag key."""

    columns: Mapping[str, str]
    tags: Mapping[str, str]

    @property
    def wanted(self) -> list[str]:
        return [*self.columns.values(), *self.tags.values()]

    def absent(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Those of `texts` whose column the file lacks; tag columns of a legacy report stand for the map of tags."""
        present = {*self.columns, *([TAGS_COLUMN] if self.tags else [])}
        return {name: why for name, why in texts.items() if name not in present}


def layout_of(path: Path) -> Layout:
    """The layout of a file.

    Raises:
        BillError: a required column is missing, or one is there twice.
    """
    names = columns_of(path)
    _refuse_doubles(path, names)
    own = {cur2_name(name): name for name in names}
    missing = [name for name in REQUIRED if name not in own]
    if not all(name in own for name in TIMES) and INTERVAL not in own:
        missing += TIMES
    if missing:
        raise BillError(
            f"{path}, line 1: column {', '.join(missing)} is missing, so this is no cost and usage report with all "
            "that is needed; select the column in the export, or create it again with the standard columns"
        )
    tags = {} if TAGS_COLUMN in own else {key: name for name in names if (key := _tag_key(name)) is not None}
    return Layout({name: own[name] for name in own if name in _READ}, tags)


def cur2_name(name: str) -> str:
    """The CUR 2.0 name of a column.

    >>> cur2_name("savingsPlan/SavingsPlanARN"), cur2_name("pricing/publicOnDemandCost")
    ('savings_plan_savings_plan_a_r_n', 'pricing_public_on_demand_cost')
    """
    words = [re.sub(r"(?<!^)(?=[A-Z])", "_", part) for part in name.strip().split("/")]
    return "_".join(words).lower()


def _tag_key(name: str) -> str | None:
    """``user:team`` of ``resourceTags/user:team``, ``user_team`` of ``resource_tags_user_team``."""
    for prefix in (_SLASH_TAG, _FLAT_TAG):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return None


def _refuse_doubles(path: Path, names: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        key = found if (found := cur2_name(name)) in _READ else name
        if key in seen:
            raise BillError(f"{path}, line 1: columns named twice: {seen[key]}, {name}; export it again")
        seen[key] = name
