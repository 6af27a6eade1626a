"""The pipeline's ledger against what was planted: spend by model and stage, idle, and what nobody explains."""

from __future__ import annotations

import shutil
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

from mlcost_pipeline.cost.deliveries import import_new
from mlcost_pipeline.cost.ledger import build_ledger
from mlcost_pipeline.cost.reconciliation import reconcile
from mlcost_pipeline.demo.biller import ACCOUNT, bill_period

CLOSE = Decimal("1e-9")


def test_the_ledger_finds_what_was_planted(spring_shop: Any, tmp_path: Path) -> None:
    shop = spring_shop
    shutil.rmtree(shop.folder / "bills", ignore_errors=True)
    bill_period(shop.warehouse, shop.folder, "2025-03")
    import_new(shop.warehouse, shop.settings)
    build_ledger(shop.warehouse, shop.settings, ACCOUNT, "2025-03")
    true = shop.truth["bill"]["2025-03"]
    reconciliation = reconcile(shop.warehouse, ACCOUNT, "2025-03")
    assert reconciliation.reconciled and reconciliation.measures[0].bill == Decimal(true["total"])
    spend: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    rest: dict[str, Decimal] = defaultdict(Decimal)
    followed: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    derived: dict[str, Decimal] = defaultdict(Decimal)
    for part in shop.warehouse.read_version("cost_ledger", f"{ACCOUNT}|2025-03").to_pylist():
        if part["method"] == "derived":
            derived[part["reason"]] += part["billed"]
            followed[part["model"], part["stage"]] += part["billed"]
        elif part["model"] is not None:
            spend[part["model"], part["stage"]] += part["billed"]
        else:
            rest[part["reason"] or "idle"] += part["billed"]
    planted = {(m, s): Decimal(text) for m, stages in true["spend"].items() for s, text in stages.items()}
    assert spend.keys() == planted.keys()
    assert all(abs(spend[key] - amount) < CLOSE for key, amount in planted.items())
    reasons = {name: Decimal(text) for name, text in true["unattributed_by_reason"].items() if Decimal(text)}
    idle = sum(map(Decimal, true["idle"].values()), Decimal(0))
    assert rest.keys() == {*reasons, "idle"}
    assert all(abs(rest[name] - amount) < CLOSE for name, amount in {**reasons, "idle": idle}.items())
    on_top = {name: Decimal(text) for name, text in true["derived"].items() if Decimal(text)}
    assert derived == on_top
    share = sum(on_top.values()) / (Decimal(true["total"]) - sum(on_top.values()))
    assert max(abs(followed[key] - amount * share) for key, amount in planted.items()) < CLOSE
