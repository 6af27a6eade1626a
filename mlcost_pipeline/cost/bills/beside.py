"""Bills that lie beside what a manifest names: of the same account and month, they must not be passed over."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mlcost_pipeline.cost.bills.contents import BillReader
from mlcost_pipeline.cost.bills.exports import Export
from mlcost_pipeline.cost.bills.files import untrusted
from mlcost_pipeline.errors import BillError


def refuse_beside(found: BillReader, exports: Sequence[Export]) -> None:
    """Refuse a folder where a file that no manifest names holds charges of an account and month of the exports.

    The beginning of each file is looked at. Files of other accounts or months, or of another format, are let be.

    Raises:
        BillError: names the file, the account and the month.
    """
    unlisted = [file for export in exports for file in export.unlisted]
    if not unlisted:
        return
    listed = {key for export in exports for file in export.files for key in _begins_with(found, file)}
    for file in unlisted:
        for account, period in sorted(_begins_with(found, file) & listed):
            raise BillError(
                f"{file}: holds charges of account {account}, period {period}, as files that a manifest names do, and "
                "no manifest names it; move it away if it is left over, or import the manifest or the file by name; "
                "nothing was taken over"
            )


def _begins_with(found: BillReader, file: Path) -> set[tuple[str, str]]:
    """Accounts and periods of a file's first batch; none of a file that is not of that format, or is damaged."""
    with suppress(BillError), untrusted(file):
        for lines in found.open_bill(file).batches():
            pairs = zip(lines.column("account").to_pylist(), lines.column("period").to_pylist(), strict=True)
            return set(pairs)
    return set()
