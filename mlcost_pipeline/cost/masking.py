"""Account ids as they may be shown to people who are not to know them."""

from __future__ import annotations

from mlcost_pipeline.cost.deliveries import bills_in_force
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.settings import Settings, digest
from mlcost_pipeline.warehouse import Warehouse

_SHOWN = 2


def shown_account(account: str, settings: Settings) -> str:
    """The account id, or where the settings ask for it a mask that still tells accounts apart.

    >>> shown_account("123456789012", Settings(version=1, name="x", accounted={"m": {}}, mask_accounts=True))
    '12…12#ddb3'
    """
    if not settings.mask_accounts:
        return account
    mark = digest("account", settings.name, account, length=4)
    if len(account) <= 2 * _SHOWN + 1:
        return f"…#{mark}"
    return f"{account[:_SHOWN]}…{account[-_SHOWN:]}#{mark}"


def shown_scope(account: str, period: str, settings: Settings) -> str:
    """An account's month as one word that may be shown: the partition of its ledger."""
    return f"{shown_account(account, settings)}|{period}"


def scope_shown(warehouse: Warehouse, settings: Settings, scope: str) -> tuple[str, str]:
    """The account and period that a :func:`shown_scope` is of.

    Raises:
        BillError: no bill in force has an account that is shown so.
    """
    shown, _, period = scope.rpartition("|")
    for account, of in bills_in_force(warehouse, period):
        if shown == shown_account(account, settings):
            return account, of
    raise BillError(f"{scope}: no bill in force is of that account and month; see: mlcost bill status")


def masked_text(text: str, account: str, settings: Settings) -> str:
    """A text in which an account id stands as it may be shown."""
    return text.replace(account, shown_account(account, settings))
