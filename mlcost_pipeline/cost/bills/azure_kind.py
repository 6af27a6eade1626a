"""Which of the two row sets of Azure a file has: ActualCost or AmortizedCost. They must never be added up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.cost.bills.convert import Place, to_money, to_texts
from mlcost_pipeline.cost.bills.files import batches
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.tables import TEXT

ACTUAL, AMORTIZED, NEITHER = "ActualCost", "AmortizedCost", "without commitments"
COMMITTED = pa.array(["reservation", "savingsplan"])
_BOUGHT = pa.array(["purchase", "refund"])
_UNUSED = pa.array(["unusedreservation", "unusedsavingsplan"])
_ADVICE = "export ActualCost and AmortizedCost to folders of their own and name one of them under bills:"


def kind_of(path: Path, columns: Mapping[str, str]) -> str:
    """ActualCost if a commitment is bought in the file or covers usage for nothing, AmortizedCost if usage under one
    has a cost or a rest of one is unused, `NEITHER` if it has no commitments: then both are the same.

    Raises:
        BillError: the file is both.
    """
    if "type" not in columns or "pricing" not in columns:
        return NEITHER
    wanted = [columns[use] for use in ("cost", "type", "pricing")]
    bought = covered = spread = False
    for line, batch in batches(path, wanted):
        place = Place(str(path), line)
        types, pricing = (_lower(place, columns[use], batch) for use in ("type", "pricing"))
        cost = to_money(place, columns["cost"], batch.column(columns["cost"]), required=False)[0]
        committed = pc.is_in(pricing, value_set=COMMITTED)
        usage, costs = pc.and_(committed, pc.equal(types, "usage")), pc.fill_null(pc.not_equal(cost, 0), False)
        bought |= _any(pc.and_(committed, pc.is_in(types, value_set=_BOUGHT)))
        covered |= _any(pc.and_(usage, pc.invert(costs)))
        spread |= _any(pc.and_(usage, costs)) or _any(pc.is_in(types, value_set=_UNUSED))
    if bought and spread:
        raise BillError(
            f"{path}: mixes ActualCost and AmortizedCost: commitments are bought in it and also spread over what they "
            f"cover, so they would be counted twice; {_ADVICE}"
        )
    return AMORTIZED if spread else ACTUAL if bought or covered else NEITHER


def refuse_mix(kinds: Iterable[tuple[Path, str]]) -> None:
    """Refuse parts of one export of which some are ActualCost and some AmortizedCost.

    Raises:
        BillError: names one file of each.
    """
    first: dict[str, Path] = {}
    for path, kind in kinds:
        first.setdefault(kind, path)
    if ACTUAL in first and AMORTIZED in first:
        raise BillError(f"{first[ACTUAL]} is {ACTUAL} and {first[AMORTIZED]} is {AMORTIZED}, of one export; {_ADVICE}")


def _lower(place: Place, column: str, batch: pa.RecordBatch) -> pa.Array:
    return pc.utf8_lower(to_texts(place, column, batch.column(column).cast(TEXT), required=False))


def _any(found: pa.Array) -> bool:
    return bool(pc.any(found).as_py())
