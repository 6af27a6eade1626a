"""Lines of an AWS Cost and Usage Report, CUR 2.0 or legacy, batch by batch; what the lines mean is in ``cur_rules``.

The account is the payer, for whom AWS makes the bill; the account that used a thing is the sub-account. Records of
split cost allocation tell parts of other lines and cost nothing themselves: they are never added to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.cost.bills.batch_values import Lost, Residues, each_text, keep, refusing
from mlcost_pipeline.cost.bills.contents import LINE
from mlcost_pipeline.cost.bills.convert import Place, to_money, to_tags, to_texts, to_times
from mlcost_pipeline.cost.bills.cur_columns import ABSENT, INTERVAL, TAGS_COLUMN, TIMES, layout_of
from mlcost_pipeline.cost.bills.cur_notes import Notes
from mlcost_pipeline.cost.bills.cur_rules import DESCRIPTION, PLAN, RESERVATION, Charges
from mlcost_pipeline.cost.bills.files import batches, sha256_of
from mlcost_pipeline.cost.bills.resource_ids import canonical
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.tables import MONEY, TAGS, TEXT

PROVIDER = "AWS"
UNBLENDED, NET = "line_item_unblended_cost", "line_item_net_unblended_cost"
LIST = "pricing_public_on_demand_cost"
PARENT = "split_line_item_parent_resource_id"
_TEXTS = {
    "sub_account": "line_item_usage_account_id", "sku": "product_sku", "description": DESCRIPTION,
    "resource_id_raw": "line_item_resource_id", "quantity_unit": "pricing_unit", "invoice_id": "bill_invoice_id",
}  # fmt: skip
_ACCOUNT_DIGITS = 12


class CurFile:
    """One file of a report; `residues` and `warnings` are whole once `batches` is exhausted."""

    def __init__(self, path: Path, version: str, absent: Mapping[str, str]) -> None:
        self.file, self.version = path, version
        self._layout = layout_of(path)
        self.sha256 = sha256_of(path)
        self.absent: Mapping[str, str] = self._layout.absent({**ABSENT, **absent})
        self.residues: Residues = {}
        self.warnings: list[str] = []

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The file's lines of schema ``LINE``.

        Raises:
            BillError: a value is not what its column must hold, or the file holds no charge; names file and line.
        """
        self.residues, rows, notes = {}, 0, Notes()
        for line, batch in batches(self.file, self._layout.wanted):
            rows += batch.num_rows
            if batch.num_rows:
                with refusing(Place(str(self.file), line)):
                    made = _Batch(Place(str(self.file), line), batch, self._layout.columns, self._layout.tags)
                    lines = self._taken(made, notes)
                if lines.num_rows:
                    yield lines
        if rows == 0:
            raise BillError(f"{self.file}: holds no charge; an empty bill takes nothing over")
        self.warnings = notes.warnings(str(self.file))

    def _taken(self, made: _Batch, notes: Notes) -> pa.RecordBatch:
        lines, lost = made.lines()
        notes.add(made.types, lines, made.net, made.split)
        left_out = _without_cost(made.split, lines)
        for line in lines.column("line").filter(left_out).to_pylist():
            lost["effective"].pop(line, None)
            lost["list"].pop(line, None)
        keep(self.residues, lost, lines)
        return lines.filter(pc.invert(left_out))


def _without_cost(split: pa.Array, lines: pa.RecordBatch) -> pa.Array:
    """Split cost allocation records that cost nothing: they would be hours of a second resource, and are left out."""
    return pc.and_(split, pc.equal(lines.column("billed"), pa.scalar(Decimal(0), MONEY)))


class _Batch:
    """One batch of a file under CUR 2.0 names."""

    def __init__(
        self, place: Place, batch: pa.RecordBatch, columns: Mapping[str, str], tags: Mapping[str, str]
    ) -> None:
        self._place, self._batch, self._columns, self._tag_columns = place, batch, columns, tags
        self.types = self._text("line_item_line_item_type", required=True)
        self.split = self._text(PARENT).is_valid()
        self.net = self._money(NET)[0]

    def lines(self) -> tuple[pa.RecordBatch, dict[str, Lost]]:
        """The lines, and by measure and line number what rounding took off."""
        rows, first = self._batch.num_rows, self._place.first_line
        texts = {name: self._text(name) for name in (PLAN, RESERVATION, DESCRIPTION)}
        charges = Charges(self._place, self.types, texts)
        billed, lost = self._money(UNBLENDED, required=True)
        effective, also_lost = charges.effective(billed, lost, lambda name, mask: self._money(name, mask))
        listed, lost_of_list = self._money(LIST, pc.equal(charges.categories, "Usage"))
        made: dict[str, pa.Array] = {name: self._text(theirs) for name, theirs in _TEXTS.items()}
        usage = pc.equal(charges.categories, "Usage")
        made |= {
            "line": pa.array(range(first, first + rows), pa.int64()),
            "provider": pa.array([PROVIDER] * rows, TEXT),
            "account": self._account(),
            "period": pc.strftime(self._time("bill_billing_period_start_date"), format="%Y-%m"),
            "category": charges.categories,
            "commitment_status": charges.statuses,
            "commitment_id": pc.coalesce(texts[PLAN], texts[RESERVATION]),
            "pricing_category": self._pricing(usage, charges.statuses),
            "service": pc.coalesce(self._text("product_servicecode"), self._text("line_item_product_code")),
            "region": pc.coalesce(self._text("product_region_code"), self._text("product_region")),
            "currency": self._text("line_item_currency_code", required=True),
            "billed": billed,
            "effective": effective,
            "list": listed,
            # Negations repeat the hours of the usage that they take back (koku PR#5252).
            "quantity": self._money("line_item_usage_amount", usage)[0],
            "allocation": pa.array(["origin"] * rows, TEXT),
            "period_closed": pa.array([False] * rows),
        }
        made["resource_id"] = each_text(made["resource_id_raw"], canonical)
        made["charge_start"], made["charge_end"] = self._times()
        made["tags"], made["tags_text"] = self._tags()
        arrays = [self._of_schema(made, field) for field in LINE]
        return pa.RecordBatch.from_arrays(arrays, schema=LINE), {
            "billed": lost, "effective": also_lost, "list": lost_of_list,
        }  # fmt: skip

    def _of_schema(self, made: Mapping[str, pa.Array], field: pa.Field) -> pa.Array:
        if field.name in made:
            return made[field.name].cast(field.type)
        return pa.nulls(self._batch.num_rows, field.type)

    def _raw(self, name: str) -> pa.Array:
        own = self._columns.get(name)
        return pa.nulls(self._batch.num_rows, TEXT) if own is None else self._batch.column(own)

    def _text(self, name: str, *, required: bool = False) -> pa.Array:
        return to_texts(self._place, self._columns.get(name, name), self._raw(name), required=required)

    def _time(self, name: str) -> pa.Array:
        return to_times(self._place, self._columns.get(name, name), self._raw(name))

    def _money(self, name: str, mask: pa.Array | None = None, *, required: bool = False) -> tuple[pa.Array, Lost]:
        values = self._raw(name)
        if mask is not None:
            values = pc.if_else(mask, values, pa.scalar(None, values.type))
        return to_money(self._place, self._columns.get(name, name), values, required=required)

    def _account(self) -> pa.Array:
        accounts = self._text("bill_payer_account_id", required=True)
        if pa.types.is_integer(self._raw("bill_payer_account_id").type):
            return pc.utf8_lpad(accounts, _ACCOUNT_DIGITS, "0")
        return accounts

    def _times(self) -> tuple[pa.Array, pa.Array]:
        """When the thing was used; where the report does not say, the interval of the line."""
        if all(name in self._columns for name in TIMES):
            starts, ends = (self._time(name) for name in TIMES)
            last = TIMES[1]
        else:
            last, texts = INTERVAL, self._text(INTERVAL, required=True)
            halves = pc.split_pattern(texts, "/", max_splits=1)
            broken = pc.not_equal(pc.list_value_length(halves), 2)
            if pc.any(broken).as_py():
                row = broken.to_pylist().index(True)
                raise self._place.fault(row, INTERVAL, f"expected two times with / between, found {texts[row]}")
            starts, ends = (to_times(self._place, INTERVAL, pc.list_element(halves, half)) for half in (0, 1))
        backwards = pc.less(ends, starts)
        if pc.any(backwards).as_py():
            row = backwards.to_pylist().index(True)
            text = f"{ends[row].as_py()} lies before the start {starts[row].as_py()}"
            raise self._place.fault(row, self._columns.get(last, last), text)
        return starts, ends

    def _pricing(self, usage: pa.Array, statuses: pa.Array) -> pa.Array:
        """FOCUS pricing category of usage: Dynamic is spot."""
        types, option = self._text("line_item_usage_type"), self._text("pricing_purchase_option")
        spot = pc.or_(
            pc.fill_null(pc.match_substring(types, "SpotUsage"), False),
            pc.fill_null(pc.equal(pc.utf8_lower(option), "spot"), False),
        )
        covered = pc.fill_null(pc.equal(statuses, "Used"), False)
        told = pc.if_else(spot, "Dynamic", pc.if_else(covered, "Committed", "Standard"))
        return pc.if_else(usage, told, pa.scalar(None, TEXT))

    def _tags(self) -> tuple[pa.Array, pa.Array]:
        if TAGS_COLUMN in self._columns:
            return to_tags(self._place, self._columns[TAGS_COLUMN], self._raw(TAGS_COLUMN))
        if not self._tag_columns:
            return pa.nulls(self._batch.num_rows, TAGS), pa.nulls(self._batch.num_rows, TEXT)
        texts = {
            key: to_texts(self._place, own, self._batch.column(own), required=False).to_pylist()
            for key, own in self._tag_columns.items()
        }
        keys = sorted(texts)
        rows = [
            [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
            for values in zip(*(texts[key] for key in keys), strict=True)
        ]
        maps = pa.array([row or None for row in rows], TAGS)
        return to_tags(self._place, TAGS_COLUMN, maps)
