"""What a person sees: the asset graph and one materialisation report, in a real browser."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from mlcost_pipeline.home import PROJECT
from tests.scenarios.conftest import DagsterDev, Shop

pytestmark = pytest.mark.browser
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
GROUPS = ("sources", "features", "evidence", "training", "serving", "cost", "levers")


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_graph_and_a_decision_are_legible_in_the_browser(shop: Shop, chromium: str, tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    copy = tmp_path / "home"
    shutil.copytree(shop.home, copy)
    shots = Path(os.environ.get("MLCOST_SCREENSHOTS", PROJECT / "screenshots"))
    shots.mkdir(parents=True, exist_ok=True)
    with DagsterDev(copy / "shop" / "mlcost.yaml", copy) as dev, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1700, "height": 1000})
        expanded = ",".join(f"global@global:{group}" for group in GROUPS)
        _open(page, f"{dev.url}/asset-groups?expanded={expanded}", "cost_ledger")
        page.wait_for_timeout(4000)
        page.screenshot(path=shots / "asset-graph.png", clip={"x": 500, "y": 110, "width": 1200, "height": 880})
        _open(page, f"{dev.url}/assets/fraud/decision?view=overview", "summary")
        page.wait_for_timeout(1500)
        text = " ".join(page.inner_text("body").split())
        page.screenshot(path=shots / "decision.png")
        browser.close()
    newest = max(shop.warehouse.rows("decisions", where="model = 'fraud'"), key=lambda row: row["as_of"])
    said = " ".join(newest["sentence"].split())
    assert said[:60] in text, "the page shows the sentence of the newest decision"
    assert (shots / "asset-graph.png").stat().st_size > 20_000
    assert (shots / "decision.png").stat().st_size > 20_000


def _open(page: Any, url: str, text: str) -> None:
    page.goto(url)
    page.get_by_text(text).first.wait_for(timeout=60_000)
    page.wait_for_timeout(2500)
