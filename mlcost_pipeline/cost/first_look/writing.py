"""A first mlcost.yaml from a bill: the models that its tags name, and rules that give them their charges."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from mlcost_pipeline.cost.first_look.looking import FirstLook
from mlcost_pipeline.cost.first_look.tag_keys import TagKey, model_name, models_of, stage_of
from mlcost_pipeline.settings import load_settings

_STAGE_OF_JOB = {
    "training-job": "training", "processing-job": "features", "transform-job": "serving", "endpoint": "serving",
}  # fmt: skip
_HEAD = """\
# Written by `mlcost init` from {bill}. Every line is yours to change.
# {looked}
version: 1
name: {name}
currency: {currency}
warehouse: warehouse
bills:
  - {{path: {path}, format: {format}}}

# Models that run elsewhere: their cost (and their outcomes, if you name a source for the table outcomes) is accounted.
# A model that this pipeline is to train and serve moves to `models:`; docs/adopting.md shows a block.
accounted:
"""
_TAIL = """
# Runs make the rest attributable: name a Dagster instance, or files of run records (docs/run-records.md).
# orchestrators:
#   - {name: main, url: https://dagster.example.com/graphql, token_env: DAGSTER_TOKEN}
# sources:
#   run_records: [...]
#   occupancy: [...]
"""


def as_yaml(look: FirstLook, *, base: Path) -> str:
    """The text of a first mlcost.yaml that stands in folder `base`; it loads as it is."""
    values = models_of(look.model_key)
    models = list(dict.fromkeys(model_name(value) for value in values)) or ["my_model"]
    head = _HEAD.format(
        bill=look.path.name, looked=_looked(look), name=json.dumps(base.name or "mlcost"), currency=look.currency,
        path=json.dumps(os.path.relpath(look.path, base)), format=look.format,
    )  # fmt: skip
    named = "" if values else "  # no tag of the bill names a model: give yours a name, and tag or record its runs\n"
    lines = [head.rstrip("\n"), *([named.rstrip("\n")] if named else []), *(f"  {model}: {{}}" for model in models)]
    rules = [*_rules(look, values)]
    if rules:
        lines += ["", "# Whose a charge is that names no run; the first rule that fits takes it.", "rules:", *rules]
    return "\n".join(lines) + "\n" + _TAIL


def _looked(look: FirstLook) -> str:
    periods = sorted({each.period for each in look.deliveries})
    span = periods[0] if len(periods) == 1 else f"{periods[0]} to {periods[-1]}"
    accounts = len({each.account for each in look.deliveries})
    return f"{look.lines} lines, {span}, {accounts} account{'s' if accounts > 1 else ''}"


def _rules(look: FirstLook, values: Sequence[str]) -> Iterator[str]:
    """For each model: its stages by stage tag or by kind of job, then all that is left of it."""
    if look.model_key is None:
        return
    key, names = look.model_key.key, _Names()
    stages = _stages(look.stage_key) if look.stage_key is not None and look.stage_key.key != key else []
    for value in values:
        when, base = {key: value}, _word(value)
        for stage_tag, other, stage in stages:
            yield _rule(names.new(f"{base}-{_word(other)}"), value, stage, {**when, stage_tag: other})
        for prefix, owner, _ in look.job_prefixes:
            kind = prefix.rstrip("/").rpartition(":")[2]
            if owner == value:
                yield _rule(names.new(f"{base}-{kind}"), value, _STAGE_OF_JOB[kind], when, prefix)
        yield _rule(names.new(base), value, "serving", when) + "  # the stage is guessed: nothing in the bill says it"


class _Names:
    """Gives out names of rules, each once."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def new(self, wanted: str) -> str:
        names = (wanted if n == 1 else f"{wanted}-{n}" for n in count(1))
        name = next(name for name in names if name not in self._given)
        self._given.add(name)
        return name


def _stages(key: TagKey) -> list[tuple[str, str, str]]:
    """(key, value, stage) of each value that means a stage."""
    found = [(value, stage_of(value)) for value, _ in key.values]
    return [(key.key, value, stage) for value, stage in found if stage is not None]


def _rule(name: str, value: str, stage: str, tags: dict[str, str], prefix: str | None = None) -> str:
    shown = ", ".join(f"{json.dumps(key)}: {json.dumps(text)}" for key, text in tags.items())
    start = f"resource_prefix: {json.dumps(prefix)}, " if prefix else ""
    when = f"{{{start}tags: {{{shown}}}}}"
    return f"  - {{name: {json.dumps(name)}, model: {model_name(value)}, stage: {stage}, when: {when}}}"


def _word(text: str) -> str:
    return model_name(text).replace("_", "-")


def write_checked(text: str, target: Path) -> None:
    """Write a yaml file that loads; a text that would not leaves what is there untouched.

    Raises:
        SettingsError: the text is no valid mlcost.yaml.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8")
        load_settings(aside)
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
