"""The columns of Azure cost exports under one set of names; headers differ by agreement, age and language.

Enterprise Agreement, Microsoft Customer Agreement, Partner Agreement and pay-as-you-go files are told by their columns:
Microsoft Cost Management, "cost and usage details" dataset schemas. A header in another language has the English name
in brackets behind it (``Ressourcengruppe (ResourceGroup)``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from mlcost_pipeline.cost.bills.files import columns_of
from mlcost_pipeline.errors import BillError

#: What is read → the columns that may hold it, the first that a file has counts.
NAMES: Mapping[str, tuple[str, ...]] = {
    "cost": ("costinbillingcurrency", "pretaxcost", "cost"),
    "currency": ("billingcurrencycode", "billingcurrency", "currency"),
    "date": ("date", "usagedatetime"),
    "period_start": ("billingperiodstartdate",),
    "period_end": ("billingperiodenddate",),
    "account": ("billingaccountid",),
    "profile": ("billingprofileid",),
    "sub_account": ("subscriptionid", "subscriptionguid"),
    "resource_id": ("resourceid", "instanceid", "instancename"),
    "tags": ("tags",),
    "type": ("chargetype",),
    "pricing": ("pricingmodel",),
    "benefit": ("benefitid",),
    "reservation": ("reservationid",),
    "invoice_id": ("invoiceid",),
    "service": ("metercategory", "servicename"),
    "sku": ("meterid",),
    "product": ("productname",),
    "meter": ("metername",),
    "quantity": ("quantity", "usagequantity"),
    "quantity_unit": ("unitofmeasure",),
    "region": ("resourcelocation",),
    "list": ("paygcostinbillingcurrency",),
}
REQUIRED = ("cost", "currency", "date")
ABSENT = {
    "resource_id": "no cost can follow a resource to its runs; export cost and usage details, not a summary",
    "tags": "no cost can be attributed by tag; tag resources with mlcost_run, mlcost_model and mlcost_stage, and "
    "switch on tag inheritance in Cost Management",
    "invoice_id": "whether the period is final cannot be told, so its figures stay provisional; exports under a "
    "Microsoft Customer Agreement have it",
    "period_start": "the billing period is taken to be the month of the charge's date",
    "type": "every charge is taken for usage: purchases, refunds and unused commitments are not told apart",
    "pricing": "spot, on-demand and committed prices are not told apart",
    "list": "savings against the list price are not shown",
    "service": "services are not shown",
    "quantity": "quantities are not shown",
    "region": "regions are not shown",
}
_KNOWN = frozenset(name for names in NAMES.values() for name in names)
_ENGLISH = re.compile(r".*\((\w+)\)")


def columns_by_use(path: Path) -> dict[str, str]:
    """What is read of a file → its own name for that column.

    Raises:
        BillError: a required column is missing, or one is there twice.
    """
    own: dict[str, str] = {}
    for name in columns_of(path):
        key = _plain(name)
        if key in own and key in _KNOWN:
            raise BillError(f"{path}, line 1: columns named twice: {own[key]}, {name}; export it again")
        own[key] = name
    found = {use: own[name] for use, names in NAMES.items() for name in reversed(names) if name in own}
    missing = [" or ".join(NAMES[use]) for use in REQUIRED if use not in found]
    if not any(use in found for use in ("account", "profile", "sub_account")):
        missing.append("billingaccountid or subscriptionid")
    if missing:
        raise BillError(f"{path}, line 1: column {', '.join(missing)} is missing, so this is no Azure cost export")
    return found


def _plain(name: str) -> str:
    found = _ENGLISH.fullmatch(name.strip())
    return (found.group(1) if found else name.strip()).lower()
