"""What a delivery adds up to, held against the raw files: sums taken by two paths must agree to the last digit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from mlcost_pipeline.cost.bills.control_sums import ControlSums, control_sums
from mlcost_pipeline.cost.bills.files import untrusted
from mlcost_pipeline.cost.exact import EXACT, ROUND, UNIT, plain
from mlcost_pipeline.cost.slots import MEASURES, from_units, to_units
from mlcost_pipeline.cost.staging import Found
from mlcost_pipeline.errors import BillError

#: How far a control sum goes: over the rows of the one delivery, or only over all rows of its export.
OF_DELIVERY, OF_EXPORT = "delivery", "export"
_MOST_OFF = Decimal("5e-13")  # of a row by rounding: half a unit of the twelfth place, to which binary floats are kept


def held_against_files(
    path: Path, format: str, files: Sequence[Path], found: Mapping[tuple[str, str], Found]
) -> dict[str, str]:
    """Hold what was read against control sums of the raw files; by measure, how far the control sum goes.

    A measure that is not named was not compared: the format has no control sums.

    Raises:
        BillError: a sum differs by any digit, or rounding is said to have taken off more than it can.
    """
    with untrusted(path):
        control = control_sums(format, files)
        if control is None:
            for each in found.values():
                _refuse_lost_money(path, each, dict.fromkeys(MEASURES, _MOST_OFF), each.rows)
            return {}
        try:
            return _compared(path, control, found)
        except BillError:
            if all(file.suffix == ".parquet" for file in files):
                raise
            again = control_sums(format, files, by_csv_module=True)  # two of three readings must agree
            assert again is not None
            return _compared(path, again, found)


def _compared(path: Path, control: ControlSums, found: Mapping[tuple[str, str], Found]) -> dict[str, str]:
    by_key = set(control.sums) == set(found)
    for measure in MEASURES:
        if by_key:
            for key, each in found.items():
                said = control.sums[key].get(measure, Decimal(0))
                _refuse_other(f"{path}: account {each.account}, period {each.period}", measure, said, [each])
        else:
            said = _sum(sums.get(measure, Decimal(0)) for sums in control.sums.values())
            _refuse_other(f"{path}", measure, said, list(found.values()))
    for key, each in found.items():
        _refuse_lost_money(path, each, control.half_units, control.rows[key] if by_key else control.rows.total())
    how = OF_DELIVERY if by_key or len(found) == 1 else OF_EXPORT
    return {name: how for name in MEASURES if any(name in sums for sums in control.sums.values())}


def totals(found: Found, measure: str) -> tuple[Decimal, Decimal]:
    """The exact sum of a measure to 18 decimals, and the part of it that the stored lines do not hold."""
    stored = found.sums[measure] or Decimal(0)
    total = ROUND.add(stored, found.residues.get(measure, Decimal(0))).quantize(UNIT, context=ROUND)
    return total, from_units(to_units(total) - to_units(stored))


def content_id(found: Found) -> str:
    """The same for the same charges, in whatever order and files they come."""
    text = json.dumps([found.account, found.period, found.rows, [str(number % 2**128) for number in found.identity]])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _refuse_other(where: str, measure: str, said: Decimal, founds: Sequence[Found]) -> None:
    read = _sum(each.sums[measure] or Decimal(0) for each in founds)
    read = EXACT.add(read, _sum(each.residues.get(measure, Decimal(0)) for each in founds))
    if read != said:
        raise BillError(
            f"{where}: {measure} adds up to {plain(said)[:60]} in the file and to {plain(read)} in the "
            f"{sum(each.rows for each in founds)} lines that were read of it; one of the two readings is wrong, so "
            "nothing was taken over; please report it with the header of the file"
        )


def _refuse_lost_money(path: Path, found: Found, half_units: Mapping[str, Decimal], rows: int) -> None:
    """Rounding takes half a unit of the last place off a row at most; what is beyond that was not rounding."""
    for measure, amount in found.residues.items():
        most = EXACT.multiply(half_units.get(measure, Decimal(0)), Decimal(rows))
        if abs(amount) > most:
            raise BillError(
                f"{path}: account {found.account}, period {found.period}: {measure} is stored {plain(amount)} short of "
                f"the file, and rounding {rows} rows can take off {plain(most)} at most; nothing was taken over"
            )


def _sum(amounts: Iterable[Decimal]) -> Decimal:
    total = Decimal(0)
    for amount in amounts:
        total = EXACT.add(total, amount)
    return total
