"""Question 5: can results be cached? The upper bound that no cache can beat: requests that repeat while still valid."""

from __future__ import annotations

from mlcost_pipeline.levers.question import Answer, Context

NAME = "cache"
QUESTION = "Can results be cached for repeated inputs?"


def ask(context: Context) -> Answer:
    """Replay the lookup log: same user, same published version, within the lists' largest age."""
    if context.config.task != "recommendation":
        return Answer(
            NAME, QUESTION, "not_shown",
            "Each payment is scored once; the request log holds no input that could be seen to repeat.",
        )  # fmt: skip
    hours = context.config.serving.max_age_hours
    row = context.warehouse.query(
        "SELECT count(*) AS n, count(*) FILTER (looked_up_at - before <= to_hours(CAST(? AS BIGINT))) AS repeats FROM ("
        "SELECT looked_up_at, lag(looked_up_at) OVER (PARTITION BY user_id, version ORDER BY looked_up_at, request_id) "
        "AS before FROM lookups WHERE user_id IS NOT NULL AND (model IS NULL OR model = ?))",
        [int(hours), context.model],
        tables=["lookups"],
    ).to_pylist()[0]
    total, repeats = int(row["n"]), int(row["repeats"])
    if total == 0:
        return Answer(NAME, QUESTION, "not_shown", "No lookup of a known user is on record.")
    sentence = (
        f"{repeats} of {total} lookups ({repeats / total:.1%}) repeat a user within {hours:g} h of the same lists: no "
        "cache can answer more. They are read from a precomputed store already, and what a cache would spare there has "
        "not been measured."
    )
    return Answer(NAME, QUESTION, "not_shown", sentence, facts={"lookups": total, "repeats": repeats})
