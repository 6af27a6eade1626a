"""Which tag of a bill names the model, and which the stage: told by the key's name and by what its values look like."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from mlcost_pipeline.cost.slots import money_sum
from mlcost_pipeline.settings_faults import MODEL_NAME, RESERVED

#: Keys that may name a model, the likeliest first; compared without provider prefix, case, blanks, - and _.
MODEL_KEYS = (
    "mlcostmodel", "model", "modelname", "mlmodel", "application", "applicationname", "app", "project", "workload",
    "service", "component", "product", "team",
)  # fmt: skip
STAGE_KEYS = ("mlcoststage", "stage", "mlstage", "phase", "step", "workloadtype", "jobtype", "purpose")
STAGE_VALUES: Mapping[str, str] = {
    "train": "training", "training": "training", "finetuning": "training",
    "serve": "serving", "serving": "serving", "inference": "serving", "predict": "serving", "online": "serving",
    "batch": "serving", "endpoint": "serving",
    "feature": "features", "features": "features", "etl": "features", "preprocessing": "features",
    "eval": "evaluation", "evaluation": "evaluation", "test": "evaluation",
}  # fmt: skip
#: A key with more values than this names runs or machines, not models.
MOST_VALUES = 500
#: Of a key with many values the dearest get a model each; a first file should be one that a person reads.
MOST_MODELS = 12


@dataclass(frozen=True)
class TagKey:
    """A tag key as it stands in the bill; `values` with their effective cost, the dearest first."""

    key: str
    effective: Decimal
    values: Sequence[tuple[str, Decimal]]


def tag_keys(charges: Iterable[tuple[Mapping[str, str], Decimal]]) -> list[TagKey]:
    """Every key of the given (tags, effective cost) pairs, the key that names most money first."""
    found: dict[str, dict[str, list[Decimal]]] = {}
    for tags, amount in charges:
        for key, value in tags.items():
            found.setdefault(key, {}).setdefault(value, []).append(amount)
    keys = []
    for key, groups in found.items():
        values = sorted(((v, money_sum(a)) for v, a in groups.items()), key=lambda each: (-each[1], each[0]))
        keys.append(TagKey(key, money_sum(amount for _, amount in values), values))
    return sorted(keys, key=lambda each: (-each.effective, each.key))


def model_key(keys: Sequence[TagKey]) -> TagKey | None:
    """The key that most likely names models, or None; one that names next to no money names nobody."""
    most = max((abs(key.effective) for key in keys), default=Decimal(0))
    fitting = [key for key in keys if len(key.values) <= MOST_VALUES and abs(key.effective) * 100 >= most]
    return _likeliest(fitting, MODEL_KEYS)


def models_of(key: TagKey | None) -> Sequence[str]:
    """The values of a key that get a model each, the dearest first."""
    return [value for value, _ in key.values if value.strip()][:MOST_MODELS] if key is not None else []


def stage_key(keys: Sequence[TagKey]) -> TagKey | None:
    """The key whose values name stages, or None."""
    fitting = [key for key in keys if any(stage_of(value) for value, _ in key.values)]
    return _likeliest(fitting, STAGE_KEYS)


def stage_of(value: str) -> str | None:
    """The stage that a tag's value means, or None.

    >>> stage_of("Inference"), stage_of("prod")
    ('serving', None)
    """
    return STAGE_VALUES.get(_plain(value))


def model_name(value: str) -> str:
    """A tag's value as a model's name in mlcost.yaml.

    >>> model_name("Fraud Score v2"), model_name("7-day churn"), model_name("platform")
    ('fraud_score_v2', 'm_7_day_churn', 'm_platform')
    """
    name = re.sub(r"[^a-z0-9]+", "_", value.lower()).strip("_")[:38] or "unnamed"
    fits = MODEL_NAME.match(name) and name not in RESERVED
    return name if fits else f"m_{name}"


def _likeliest(keys: Sequence[TagKey], names: Sequence[str]) -> TagKey | None:
    ranked = [(names.index(_plain(key.key)), -key.effective, key.key, key) for key in keys if _plain(key.key) in names]
    return min(ranked)[-1] if ranked else None


def _plain(text: str) -> str:
    return re.sub(r"[\s_\-]", "", text.lower().rpartition(":")[2].rpartition("/")[2])
