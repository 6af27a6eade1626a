"""The mlcost.yaml of a simulated shop, and the price list of its cloud."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from mlcost_pipeline.demo.cloud import Cloud
from mlcost_pipeline.demo.files import write_atomically
from mlcost_pipeline.demo.past_runs import CPU_REPLICA, GPU_REPLICAS, NOTEBOOK, PRICES, WORKER
from mlcost_pipeline.demo.plan import HOLDOUT_SHARE, MODEL, SCORER, Plan

POOLS = {"spot-a": "0.9731", "spot-b": "1.0117", "on-demand": "3.06"}

_YAML = """\
# A simulated shop. Everything made from it is marked SIMULATED.
version: 1
name: shop
simulated: true
proxy_note: The shop, its users, its payments and its bill are simulated; {requests}
warehouse: warehouse
currency: USD

sources:
  interactions:
    path: data/events
    format: csv
    columns:
      event_id: event
      user_id: visitor
      item_id: sku
      kind: action
      happened_at: happened
      request_id: lookup
  items:
    path: data/items.parquet
    columns: {{item_id: sku, valid_from: listed, valid_to: delisted, attributes: details}}
  users:
    path: data/users
    columns: {{user_id: visitor, valid_from: since, segment: segment}}
  transactions:
    path: data/payments
    columns:
      transaction_id: payment
      happened_at: paid_at
      merchant_category: category
      amount: amount
      currency: currency
      customer_id: customer
      terminal_id: terminal
      feature_online: online
  labels:
    path: data/labels
    columns: {{transaction_id: payment, known_at: known, is_fraud: fraud}}
  lookups:
    path: data/lookups
    columns: {{{lookups}}}
  requests:
    path: data/requests
    columns: {{{requests_columns}}}
  # runs of the past, and of the fleet that stands whatever happens, from the shop's older system
  run_records:
    path: data/run_records
    columns: {{{run_records}}}
  occupancy:
    path: data/occupancy
    columns: {{run_id: run_id, resource_id: resource_id, start: start, end: end, share_milli: share_milli}}
  resources:
    path: data/resources
    columns: {{{resources}}}

bills:
  - path: bills

models:
  {model}:
    task: recommendation
    mode: act
    first_day: {first_day}
    clock: {{origin: '{origin}', rate: {rate}}}
    trainer:
      family: sasrec
      params: {{factors: 48, max_length: 30, epochs: 25, batch_size: 64, learning_rate: 0.001, dropout: 0.3}}
      checkpoint_seconds: 2
    baseline: {{family: als, params: {{factors: 32, iterations: 8}}}}
    positive_kinds: [view, purchase]
    slices: [segment]
    important_slices: {{segment: [business]}}
    windows: {{training_days: 90, holdout_days: {holdout}, evidence_days: {holdout}}}
    policy: {{{few}value_per_outcome: '2.00'}}
    outcome: {{unit: added_clicks, attribution_hours: 24, hits_at: 10}}
    serving: {{list_length: 10, stored_length: 50, max_age_hours: 48, popular_days: 28}}
    deploy_window_hours: 8
    holdout_share: {holdout_share}
  {scorer}:
    task: scoring
    mode: act
    first_day: {first_day}
    clock: {{origin: '{origin}', rate: {rate}}}
    trainer: {{family: mlp, params: {{epochs: 24}}, checkpoint_seconds: 2}}
    baseline: {{family: forest}}
    features: [amount, merchant_category, feature_online]
    slices: [merchant_category]
    important_slices: {{merchant_category: [jewellery]}}
    # after ten days nine frauds in ten are known; after seven, three in four
    windows: {{training_days: 75, holdout_days: {holdout}, evidence_days: {holdout}, label_delay_days: {delay}}}
    policy: {{{few}value_per_outcome: '90.00'}}
    outcome: {{unit: fraud_caught}}
    alerts_per_day: {alerts}
    deploy_window_hours: 8

capacity:
  provider: local
  pools:
    - name: spot-a
      market: spot
      price_per_hour: '{spot_a}'
      trace_seed: {seed}
      startup_seconds: 120
      notice_seconds: 120
    - name: spot-b
      market: spot
      price_per_hour: '{spot_b}'
      trace_seed: {seed_b}
      startup_seconds: 120
      notice_seconds: 120
    - {{name: on-demand, market: on_demand, price_per_hour: '{on_demand}', startup_seconds: 90}}

worker: {{resource_id: {worker}, price_per_hour: '{cpu16}', capacity_milli: 16000, share_milli: 1000}}
prices: {{gpu: '{gpu}', gpu4: '{gpu4}', cpu: '{cpu}', cpu16: '{cpu16}'}}
"""
RATE = 180
_SHORT_HISTORY_DAYS = 60  # with less, windows and thresholds of a shop for trying things
_FEW = "min_new_rows: 50, min_new_positives: 1, min_window_rows: 20, "
_SAMPLED = "the request log is a sample of one request in 250."


def write_settings(shop: Path, plan: Plan) -> Path:
    """The shop's mlcost.yaml: both models' clocks begin at six in the morning after the last day of history."""
    short = plan.days < _SHORT_HISTORY_DAYS
    origin = plan.midnight(plan.days) + timedelta(hours=6)
    text = _YAML.format(
        requests=_SAMPLED, model=MODEL, scorer=SCORER, first_day=plan.day(0), origin=f"{origin:%Y-%m-%dT%H:%M:%SZ}",
        rate=RATE, holdout=2 if short else 7, delay=7 if short else 10, few=_FEW if short else "",
        holdout_share=HOLDOUT_SHARE, alerts=max(2, plan.payments_per_day // 40), seed=plan.seed, seed_b=plan.seed + 1,
        spot_a=POOLS["spot-a"], spot_b=POOLS["spot-b"], on_demand=POOLS["on-demand"], worker=WORKER,
        lookups=_same("request_id looked_up_at user_id arm tier reason version items age_seconds latency_seconds"),
        requests_columns=_same("request_id arrived_at endpoint replica batch_size queue_seconds service_seconds"),
        run_records=_same(
            "run_id job_id attempt model model_version stage purpose asset partition market pool price started_at "
            "ended_at status cause steps_done steps_redone busy_seconds busy_metric busy_coverage"
        ),
        resources=_same("resource_id valid_from valid_to kind capacity_milli capacity_unit"),
        **{kind: f"{price}" for kind, price in PRICES.items()},
    )  # fmt: skip
    return write_atomically(shop / "mlcost.yaml", text.encode())


def shop_cloud() -> Cloud:
    """What the shop's cloud charges, which resources stand, and the tags that the shop gave them."""
    tags = {replica: {"mlcost_model": MODEL, "mlcost_stage": "serving"} for replica in GPU_REPLICAS}
    tags[CPU_REPLICA] = {"mlcost_model": SCORER, "mlcost_stage": "serving"}
    tags[WORKER] = {"team": "ml"}
    standing = frozenset({*GPU_REPLICAS, CPU_REPLICA, WORKER, NOTEBOOK})
    return Cloud(PRICES, {pool: Decimal(price) for pool, price in POOLS.items()}, standing, tags)


def write_cloud(shop: Path) -> Path:
    """The cloud's price list as the biller reads it."""
    cloud = shop_cloud()
    value = {
        "prices": {kind: f"{price}" for kind, price in cloud.prices.items()},
        "pools": {pool: f"{price}" for pool, price in cloud.pools.items()},
        "standing": sorted(cloud.standing),
        "tags": {resource_id: dict(tags) for resource_id, tags in cloud.tags.items()},
    }
    return write_atomically(shop / "cloud.json", json.dumps(value, indent=1, sort_keys=True).encode() + b"\n")


def _same(names: str) -> str:
    return ", ".join(f"{name}: {name}" for name in names.split())
