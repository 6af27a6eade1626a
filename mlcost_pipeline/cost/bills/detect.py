"""Which format an export is in, told by the columns of its first file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mlcost_pipeline.cost.bills.exports import find_exports
from mlcost_pipeline.cost.bills.files import SUFFIXES, columns_of
from mlcost_pipeline.errors import BillError

#: A column that only this format has, compared in lower case.
_MARKS: Mapping[str, tuple[str, ...]] = {
    "focus": ("billedcost", "chargeperiodstart"),
    "cur2": ("line_item_unblended_cost",),
    "cur_legacy": ("lineitem/unblendedcost",),
    "azure_ea": ("costinbillingcurrency", "meterid"),
}


def detect_format(path: Path) -> str:
    """The name of the format of an export: a file, a folder of files, or a manifest.

    Raises:
        BillError: nothing there is a billing export, or its columns are of no format that is read.
    """
    file = find_exports(path, SUFFIXES)[0].files[0]
    columns = {name.strip().lower() for name in columns_of(file)}
    for name, marks in _MARKS.items():
        if columns.issuperset(marks):
            return name
    shown = ", ".join(sorted(columns)[:6])
    raise BillError(
        f"{file}: its columns ({shown}, …) are of no billing export that is read; formats: {', '.join(_MARKS)}; "
        "name the format yourself with --format if you know it"
    )
