"""What bought nothing: retrains and runs of no use, capacity that stood idle, lists that nobody read."""

from __future__ import annotations

from decimal import Decimal

from mlcost_pipeline.clock import model_clock
from mlcost_pipeline.cost.fruitless_runs import FruitlessRuns, IdlePool
from mlcost_pipeline.cost.idle_replicas import IdleReplica
from mlcost_pipeline.cost.unread_lists import UnreadLists
from mlcost_pipeline.cost.waste import UselessRetrain, Waste
from mlcost_pipeline.cost.waste import waste as found_waste
from mlcost_pipeline.reports.document import ESTIMATE, PROVISIONAL, Document, Number, Table
from mlcost_pipeline.reports.dress import counted, dressed
from mlcost_pipeline.reports.values import Cell, Quantity, show_number
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.settings_faults import PLATFORM
from mlcost_pipeline.warehouse import Warehouse

TITLE = "What bought nothing"
NOTES = (
    "Reads are the lookups on record. Lists of the version in force may still be read, and are in no sum.",
    "Idle is what nobody held of a resource that served, also in months for which it was left on, and what services "
    "held of it while they were measured not to be busy; tax, support and discounts, which are of no resource, are not "
    "in it.",
)


def waste(warehouse: Warehouse, settings: Settings) -> Document:
    """One sentence, a sum and a table for each kind."""
    found = found_waste(warehouse, settings, model_clock(warehouse, settings, PLATFORM).now())
    currency = settings.currency
    doc = Document(
        title=TITLE,
        summary=_sentence(found, currency),
        numbers=[
            Number("useless_retrains", "retrains that never shipped", found.of_retrains, currency),
            Number("fruitless_runs", "other runs that came to nothing", found.of_runs, currency),
            Number("idle_replicas", "idle serving capacity", found.of_replicas, currency),
            Number("idle_pools", "other capacity that no run held", found.of_pools, currency),
            Number("unread_lists", "lists that nobody read", found.of_lists, currency),
        ],
        tables=[
            _retrains(found.retrains, currency),
            _runs(found.runs, currency),
            _replicas(found.replicas, currency),
            _pools(found.pools, currency),
            _lists(found.lists, currency),
        ],
        notes=[*NOTES, *found.unknown],
    )
    return dressed(doc.marked(*_marks(found)), settings)


def _marks(found: Waste) -> list[str]:
    estimated = [each.estimated for kind in (found.retrains, found.runs, found.lists) for each in kind]
    kinds = (found.retrains, found.runs, found.replicas, found.pools, found.lists)
    open_ = [each.provisional for kind in kinds for each in kind]
    return [ESTIMATE] * any(estimated) + [PROVISIONAL] * any(open_)


def _sentence(found: Waste, currency: str) -> str:
    never = [each for each in found.retrains if each.became == "never_shipped"]
    bare = len(found.retrains) - len(never)
    said = [f"{counted(len(never), 'retrain')} never shipped ({show_number(found.of_retrains, currency)})"]
    if bare:
        said.append(f"{bare} shipped without a gain that was shown")
    if found.runs:
        count = sum(each.runs for each in found.runs)
        said.append(
            f"{counted(count, 'other run')} came to nothing or did work again ({show_number(found.of_runs, currency)})"
        )
    if found.replicas:
        said.append(f"serving capacity stood idle for {show_number(found.of_replicas, currency)}")
    if found.pools:
        said.append(f"no run held {show_number(found.of_pools, currency)} of other capacity")
    told = [(each.lists, each.read) for each in found.lists if each.over and each.read is not None]
    if told:
        lists, read = sum(number for number, _ in told), sum(number for _, number in told)
        said.append(f"{lists - read:,} of {lists:,} lists were never read ({show_number(found.of_lists, currency)})")
    return f"{'; '.join(said)}."


def _retrains(rows: tuple[UselessRetrain, ...], currency: str) -> Table:
    cells: list[list[Cell]] = [
        [each.model, each.job_id, each.began, each.became.replace("_", " "), Quantity(each.spent, currency),
         _source(each.spent, each.estimated), each.reason]
        for each in rows
    ]  # fmt: skip
    columns = ["model", "job", "began", "became", "cost of all attempts", "by", "why"]
    return Table("Retrains of no use", columns, cells, empty="every retrain that is over shipped, with a gain shown")


def _runs(rows: tuple[FruitlessRuns, ...], currency: str) -> Table:
    cells: list[list[Cell]] = [
        [each.model, each.stage, each.became.replace("_", " "), each.runs, Quantity(each.spent, currency),
         each.unpriced, _source(each.spent, each.estimated)]
        for each in rows
    ]  # fmt: skip
    columns = ["model", "stage", "became", "runs", "cost of it", "of unknown cost", "by"]
    return Table("Other runs that came to nothing", columns, cells, empty="every run that is over was of use")


def _pools(rows: tuple[IdlePool, ...], currency: str) -> Table:
    cells: list[list[Cell]] = [[each.period, each.resource_id, Quantity(each.idle, currency)] for each in rows]
    columns = ["month", "resource", "held by no run"]
    return Table(
        "Other capacity that stood idle", columns, cells, empty="no ledger has idle capacity that does not serve"
    )


def _replicas(rows: tuple[IdleReplica, ...], currency: str) -> Table:
    cells: list[list[Cell]] = [
        [each.period, each.resource_id, ", ".join(each.models), Quantity(each.spent, currency),
         Quantity(each.unheld, currency),
         "not measured" if each.unused is None else Quantity(each.unused, currency),
         Quantity(each.unmeasured, currency)]
        for each in rows
    ]  # fmt: skip
    columns = [
        "month",
        "replica",
        "serves",
        "cost",
        "of it held by nobody",
        "held, and not busy",
        "held, and not measured",
    ]
    return Table("Serving capacity that stood idle", columns, cells, empty="no bill charges a resource that serves")


def _lists(rows: tuple[UnreadLists, ...], currency: str) -> Table:
    cells: list[list[Cell]] = [
        [each.model, each.version, each.at, each.lists, "not known" if each.read is None else each.read,
         Quantity(each.spent, currency), Quantity(each.wasted, currency), _source(each.spent, each.estimated),
         each.state.replace("_", " ")]
        for each in rows
    ]  # fmt: skip
    columns = ["model", "version", "published or cut", "lists", "read", "cost", "of it unread", "by", "state"]
    return Table("Lists that nobody read", columns, cells, empty="no list was made")


def _source(spent: Decimal | None, estimated: bool) -> str:
    return "not known" if spent is None else "estimate" if estimated else "bill"
