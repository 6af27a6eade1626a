"""What a person calls a line, an account or a bill, and which one it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcost_pipeline.cli.opened import Opened, a_month
from mlcost_pipeline.errors import BillError

if TYPE_CHECKING:
    from mlcost_pipeline.warehouse import Warehouse


def line_named(
    opened: Opened, warehouse: Warehouse, line: str, account: str | None, period: str | None
) -> tuple[str, int]:
    """The delivery, or the beginning of its id, and the number in it of a line named DELIVERY:NUMBER or NUMBER.

    Raises:
        BillError: it is neither, or a bare number could be in several bills; the text names those there are.
    """
    from mlcost_pipeline.cost.deliveries import bills_in_force, in_force

    delivery_id, _, number = line.rpartition(":")
    if not number.isdecimal():
        raise BillError(
            f"line {line!r}: expected DELIVERY:NUMBER or a number, that of the line in the file (its header is 1); "
            f"{bills_there(opened)}"
        )
    if delivery_id:
        return delivery_id, int(number)
    named = None if account is None else account_named(opened, account)
    pairs = bills_in_force(warehouse, None if period is None else a_month(period))
    fitting = [pair for pair in pairs if named in (None, pair[0])]
    if len(fitting) != 1:
        raise BillError(
            f"line {line}: {len(fitting)} bills in force fit; name one by --account and --period; {bills_there(opened)}"
        )
    found = in_force(warehouse, *fitting[0])
    assert found is not None
    return found, int(number)


def account_named(opened: Opened, name: str) -> str:
    """The account id that was given, or that is shown as what was given."""
    from mlcost_pipeline.cost.deliveries import bills_in_force
    from mlcost_pipeline.cost.masking import shown_account

    known = [account for account, _ in bills_in_force(opened.warehouse)]
    return next((account for account in known if shown_account(account, opened.settings) == name), name)


def bills_there(opened: Opened) -> str:
    """The bills there are, for whoever named one that is not there."""
    from mlcost_pipeline.cost.deliveries import bills_in_force

    pairs = bills_in_force(opened.warehouse)
    if not pairs:
        return "no bill is in force; run: mlcost bill import FILE"
    listed = ", ".join(f"{name} {month}" for name, month in pairs[:6])
    return f"in force: {listed}{', and more: mlcost bill status' if len(pairs) > 6 else ''}"
