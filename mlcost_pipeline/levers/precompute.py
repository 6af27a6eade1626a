"""Question 3: can predictions be batched or precomputed? How many requests a precomputed answer has served."""

from __future__ import annotations

from mlcost_pipeline.levers.question import Answer, Context

NAME = "precompute"
QUESTION = "Can predictions be batched or precomputed?"
PRECOMPUTED = ("fresh", "filtered")


def ask(context: Context) -> Answer:
    """Count, from the logs, what was answered from lists or batches made beforehand."""
    return _lists(context) if context.config.task == "recommendation" else _scores(context)


def _lists(context: Context) -> Answer:
    rows = context.warehouse.query(
        "SELECT tier, count(*) AS n FROM lookups WHERE model IS NULL OR model = ? GROUP BY tier",
        [context.model],
        tables=["lookups"],
    ).to_pylist()
    by_tier = {row["tier"]: int(row["n"]) for row in rows}
    total = sum(by_tier.values())
    if total == 0:
        return Answer(NAME, QUESTION, "not_shown", "No lookup is on record, so nobody knows what a batch could answer.")
    hit = sum(by_tier.get(tier, 0) for tier in PRECOMPUTED)
    sentence = (
        f"Lists are precomputed already: {hit} of {total} lookups ({hit / total:.1%}) were answered from them, "
        f"{1 - hit / total:.1%} fell back."
    )
    return Answer(NAME, QUESTION, "leave", sentence, facts={"tiers": by_tier, "precomputed_share": hit / total})


def _scores(context: Context) -> Answer:
    batch = _count(context, "SELECT count(*) AS n FROM predictions WHERE model = ?", [context.model], "predictions")
    online = _count(context, "SELECT count(*) AS n FROM requests WHERE endpoint = '/score'", [], "requests")
    if batch + online == 0:
        return Answer(NAME, QUESTION, "not_shown", "No prediction and no request is on record.")
    facts = {"batch_predictions": batch, "online_requests": online}
    if online == 0:
        return Answer(NAME, QUESTION, "leave", f"All {batch} predictions on record were made in batches.", facts=facts)
    sentence = (
        f"{batch} predictions were made in batches and {online} requests were scored online; how many of those could "
        "have waited for a batch is not on record."
    )
    return Answer(NAME, QUESTION, "not_shown", sentence, facts=facts)


def _count(context: Context, sql: str, params: list[str], table: str) -> int:
    return int(context.warehouse.query(sql, params, tables=[table]).to_pylist()[0]["n"])
