"""What readers of batches share: residues added up exactly, texts told once each, strange types refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal

import pyarrow as pa

from mlcost_pipeline.cost.bills.convert import Place
from mlcost_pipeline.cost.exact import EXACT
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.tables import TEXT

#: By line number, what rounding took off a line (exact minus stored).
Lost = dict[int, Decimal]
Residues = dict[tuple[str, str], dict[str, Decimal]]


def keep(residues: Residues, lost: Mapping[str, Lost], lines: pa.RecordBatch) -> None:
    """Add what was lost, by measure and line number, to the account and period of its line."""
    if not any(lost.values()):
        return
    first = lines.column("line")[0].as_py()
    accounts, periods = lines.column("account").to_pylist(), lines.column("period").to_pylist()
    for measure, losses in lost.items():
        for line, amount in losses.items():
            kept = residues.setdefault((accounts[line - first], periods[line - first]), {})
            kept[measure] = EXACT.add(kept.get(measure, Decimal(0)), amount)


@contextmanager
def refusing(place: Place) -> Iterator[None]:
    """Turn what Arrow raises on a column of an unfit type into a BillError that names the place."""
    try:
        yield
    except pa.ArrowException as error:
        raise BillError(f"{place.file}, from line {place.first_line}: {error}; nothing was taken over") from error


def each_text(texts: pa.Array, told: Callable[[str], str | None]) -> pa.Array:
    """`told` of every text, asked once for each that differs; null stays null."""
    encoded = texts.dictionary_encode()
    return pa.array([told(text) for text in encoded.dictionary.to_pylist()], TEXT).take(encoded.indices)
