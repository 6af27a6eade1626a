"""Tags by which a cloud resource names its run on the bill, checked before anything is launched with them."""

from __future__ import annotations

from collections.abc import Mapping

from mlcost_pipeline.errors import JobError

#: AWS: at most 50 tags a resource, keys of 128 and values of 256 characters (Tag naming limits and requirements).
MOST_TAGS, LONGEST_KEY, LONGEST_VALUE = 50, 128, 256


def tags_for_run(run_id: str, model: str, stage: str, *, others: Mapping[str, str] | None = None) -> dict[str, str]:
    """The tags to launch a run's resource with: those of a team, and ours.

    >>> tags_for_run("fraud-7", "fraud", "training")
    {'mlcost_run': 'fraud-7', 'mlcost_model': 'fraud', 'mlcost_stage': 'training'}

    Raises:
        JobError: a tag is too long, or there are too many of them; the text says which and what is allowed.
    """
    tags = {**(others or {}), "mlcost_run": run_id, "mlcost_model": model, "mlcost_stage": stage}
    if len(tags) > MOST_TAGS:
        raise JobError(f"run {run_id}: {len(tags)} tags with ours, and a resource takes {MOST_TAGS}; drop some")
    for key, value in tags.items():
        if len(key) > LONGEST_KEY or len(value) > LONGEST_VALUE:
            raise JobError(
                f"run {run_id}: tag {key[:40]!r} has a key of {len(key)} and a value of {len(value)} characters; "
                f"allowed are {LONGEST_KEY} and {LONGEST_VALUE}"
            )
        if key.lower().startswith("aws:"):
            raise JobError(f"run {run_id}: tag {key[:40]!r}: keys that begin with aws: are the provider's own")
    return tags
