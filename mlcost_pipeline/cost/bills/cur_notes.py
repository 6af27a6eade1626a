"""What is to be said of a cost and usage report once it is read.

Line types that nobody knows, net costs that do not add up, records of split cost allocation.
"""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.cost.bills.cur_rules import DISCOUNTS, LINE_TYPES
from mlcost_pipeline.cost.exact import EXACT, plain

_CENT = Decimal("0.01")
_WIDE = pa.decimal256(76, 18)


class Notes:
    """Counts and sums over the batches of one file."""

    def __init__(self) -> None:
        self._unknown: dict[str, tuple[int, Decimal]] = {}
        self._billed = self._net = self._split_cost = Decimal(0)
        self._has_net, self._split, self._split_charged = False, 0, 0

    def add(self, types: pa.Array, lines: pa.RecordBatch, net: pa.Array, split: pa.Array) -> None:
        """Take note of a batch: its line types, lines, net costs, and which lines are split cost allocation."""
        billed = lines.column("billed")
        for name in sorted(set(types.to_pylist()) - LINE_TYPES.keys()):
            count, total = self._unknown.get(name, (0, Decimal(0)))
            chosen = billed.filter(pc.equal(types, name))
            self._unknown[name] = (count + len(chosen), EXACT.add(total, _sum(chosen)))
        self._add_net(types, billed, net)
        charged = billed.filter(pc.and_(split, pc.not_equal(billed, pa.scalar(Decimal(0), billed.type))))
        self._split += pc.sum(split.cast(pa.int64())).as_py() or 0
        self._split_charged += len(charged)
        self._split_cost = EXACT.add(self._split_cost, _sum(charged))

    def _add_net(self, types: pa.Array, billed: pa.Array, net: pa.Array) -> None:
        """Net of a line that has none is what it is billed; of a discount nothing, for the others have it in them."""
        discount = pc.is_in(types, value_set=pa.array(DISCOUNTS))
        fallback = pc.if_else(discount, pa.scalar(Decimal(0), billed.type), billed)
        self._has_net |= net.null_count < len(net)
        self._net = EXACT.add(self._net, _sum(pc.coalesce(net, fallback)))
        self._billed = EXACT.add(self._billed, _sum(billed))

    def warnings(self, file: str) -> list[str]:
        """One text for each thing to be said."""
        said = [
            f"{file}: line type {name} is not known: {count} lines, {plain(total)} in all, kept under that name "
            "with what they are billed as effective cost"
            for name, (count, total) in sorted(self._unknown.items())
        ]
        difference = EXACT.subtract(self._billed, self._net)
        if self._has_net and abs(difference) >= _CENT:
            said.append(
                f"{file}: unblended costs with discounts add up to {self._billed:.2f}, net costs to {self._net:.2f}; "
                "the unblended are counted, and discounts as lines of their own; check that the export has the "
                "discount lines"
            )
        if self._split:
            said.append(
                f"{file}: {self._split - self._split_charged} records of split cost allocation were left out: they "
                "tell parts of other lines and cost nothing themselves"
            )
        if self._split_charged:
            said.append(
                f"{file}: {self._split_charged} records of split cost allocation have a cost of their own, "
                f"{self._split_cost:.2f} in all, which is counted; if it is part of other lines too, it counts twice"
            )
        return said


def _sum(amounts: pa.Array) -> Decimal:
    return pc.sum(amounts.cast(_WIDE)).as_py() or Decimal(0)
