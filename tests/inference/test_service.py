"""The HTTP service, asked over a real socket on loopback."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from typing import Any

import httpx
import pytest
import uvicorn

from mlcost_pipeline.inference.lookup_log import roll_lookups, roll_requests
from mlcost_pipeline.inference.predict import score_days
from mlcost_pipeline.inference.publication import make_version, rollback
from mlcost_pipeline.inference.service import MAX_BODY_BYTES, create_app
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse
from tests.inference.conftest import MODEL as SHOP
from tests.inference.conftest import Shop, open_shop
from tests.inference.payments import Bank

PAYMENT = {"transaction_id": "007", "happened_at": "2025-06-08T10:00:00Z", "merchant_category": "shoes", "amount": 450}


class Served:
    """A running service over a warehouse that holds a shop and a bank."""

    def __init__(self, shop: Shop, bank: Bank, client: httpx.Client, version: str) -> None:
        self.shop, self.bank, self.client, self.version = shop, bank, client, version


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("service") / "warehouse"
    shop = open_shop(root, [f"u{n}" for n in range(80)])
    bank = Bank(root, beside={SHOP: shop.settings.models[SHOP].model_dump(mode="json")})
    bank.fill()
    bank.train()
    make_version(shop.warehouse, bank.settings, shop.clock, SHOP, as_of=shop.day - timedelta(days=1))
    made = make_version(shop.warehouse, bank.settings, shop.clock, SHOP, as_of=shop.day)
    score_days(bank.warehouse, bank.settings, bank.clock, bank.model, date(2025, 6, 7), date(2025, 6, 8))
    with running(bank.settings, bank.warehouse) as client:
        yield Served(shop, bank, client, made.version)


@contextmanager
def running(settings: Settings, warehouse: Warehouse) -> Iterator[httpx.Client]:
    """The service on a free port of loopback, stopped gracefully at the end."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        config = uvicorn.Config(create_app(settings, warehouse), log_level="warning", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=30) as client:
            while not server.started:
                time.sleep(0.01)
            yield client
        server.should_exit = True
        thread.join()


def test_health_and_readiness(service: Served) -> None:
    assert service.client.get("/health").json() == {"status": "ok"}
    ready = service.client.get("/ready")
    assert ready.status_code == 200
    assert ready.json()["models"][SHOP]["version"] == service.version


def test_a_user_gets_items_with_where_they_come_from(service: Served) -> None:
    answer = service.client.get("/recommendations/u7").json()
    assert len(answer["items"]) == 4 and answer["version"] == service.version
    assert answer["tier"] in ("fresh", "filtered") and answer["user"] == "u7"
    stranger = service.client.get("/recommendations/007").json()
    assert (stranger["tier"], stranger["reason"], len(stranger["items"])) == ("popular", "unknown_user", 4)


def test_payments_are_scored_in_the_order_asked(service: Served) -> None:
    small = {**PAYMENT, "transaction_id": "8", "amount": 20}
    answer = service.client.post("/score", json={"rows": [PAYMENT, small]}).json()
    assert [score["transaction_id"] for score in answer["scores"]] == ["007", "8"]
    large, little = (score["score"] for score in answer["scores"])
    assert large > little
    assert answer["threshold"] is not None
    assert [score["alert"] for score in answer["scores"]] == [
        large >= answer["threshold"],
        little >= answer["threshold"],
    ]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"rows": []}, "rows"),
        ({}, "rows"),
        ({"rows": [PAYMENT], "surprise": 1}, "surprise"),
        ({"rows": [{k: v for k, v in PAYMENT.items() if k != "amount"}]}, "amount"),
        ({"rows": [{**PAYMENT, "amount": "much"}]}, "amount"),
        ({"rows": [{**PAYMENT, "happened_at": "yesterday"}]}, "happened_at"),
        ({"rows": [{**PAYMENT, "happened_at": "2025-06-08T10:00:00"}]}, "zone"),
        ({"rows": [{**PAYMENT, "is_fraud": True}]}, "is_fraud"),
        ({"rows": [{**PAYMENT, "amount": [1]}]}, "amount"),
        ({"rows": [PAYMENT] * 1001}, "rows"),
    ],
)
def test_a_request_that_does_not_fit_is_answered_by_where_and_what(
    service: Served, body: dict[str, Any], told: str
) -> None:
    answer = service.client.post("/score", json=body)
    assert answer.status_code == 422
    assert told in answer.text


def test_what_is_not_json_and_what_is_too_long_is_refused(service: Served) -> None:
    assert service.client.post("/score", content=b"{", headers={"content-type": "application/json"}).status_code == 422
    assert service.client.post("/score", content=b" " * (MAX_BODY_BYTES + 1)).status_code == 413
    chunks = (b" " * 100_000 for _ in range(11))
    assert service.client.post("/score", content=chunks).status_code == 413, "no length was promised"
    assert service.client.get(f"/recommendations/{'x' * 201}").status_code == 422
    assert service.client.get("/recommendations/u7", params={"model": "nonesuch"}).status_code == 404


def test_a_rollback_is_picked_up_without_a_restart(service: Served) -> None:
    now = rollback(service.shop.warehouse, service.shop.clock, SHOP, "test", version=service.version)
    deadline = time.monotonic() + 10
    while service.client.get("/recommendations/u7").json()["version"] != now:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_was_served_is_on_record_within_a_second(service: Served) -> None:
    request = service.client.get("/recommendations/u9").json()["request_id"]
    service.client.post("/score", json={"rows": [PAYMENT] * 3})
    deadline = time.monotonic() + 5
    warehouse = service.shop.warehouse
    while True:
        roll_lookups(warehouse), roll_requests(warehouse)
        served = warehouse.rows("lookups", where="request_id = ?", params=[request])
        sizes = {(row["endpoint"], row["batch_size"]) for row in warehouse.rows("requests")}
        if served and ("fraud/score", 3) in sizes and ("shop/recommendations", 1) in sizes:
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert served[0]["user_id"] == "u9" and len(served[0]["items"]) == 4
    assert all(row["service_seconds"] > 0 for row in warehouse.rows("requests"))


def test_before_a_version_is_live_the_service_answers_but_is_not_ready(shop: Shop) -> None:
    with running(shop.settings, shop.warehouse) as client:
        assert client.get("/health").status_code == 200
        assert client.get("/ready").status_code == 503
        answer = client.get("/recommendations/u7").json()
        assert (answer["reason"], len(answer["items"])) == ("no_version", 4)
        assert answer["tier"] == "static", "by the real clock nothing was bought in the last days"
        assert client.post("/score", json={"rows": [PAYMENT]}).status_code == 404
