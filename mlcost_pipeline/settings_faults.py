"""Faults of mlcost.yaml that no single field can tell: names that must fit together.

They are looked for in the file as it was written, so that they are told together with the faults of single fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from mlcost_pipeline.tables import TABLES

MODEL_NAME = re.compile(r"^[a-z][a-z0-9_]{0,40}$")
#: Work that serves every model is recorded under this name.
PLATFORM = "platform"
RESERVED = (PLATFORM,)
#: The families that come with the project, and the task that each is for.
FAMILY_TASKS = {"als": "recommendation", "sasrec": "recommendation", "forest": "scoring", "mlp": "scoring"}
NEEDED = {"recommendation": ("interactions",), "scoring": ("transactions", "labels")}
#: Tables whose columns describe the units of a task, and so may be slices.
DESCRIBING = {"recommendation": ("users",), "scoring": ("transactions",)}
#: Slices that need no column: how active a user is.
BUILT_IN = {"recommendation": {"activity"}, "scoring": set[str]()}


def faults_of(data: Mapping[str, Any]) -> list[str]:
    """Every fault between fields as ``path: what was found and what is allowed``."""
    sources, models = _mapping(data.get("sources")), _mapping(data.get("models"))
    found = [*_sources(sources), *_pools(_mapping(data.get("capacity"))), *_cost(data, models)]
    for name, block in models.items():
        found += _model(str(name), _mapping(block), sources)
    return found


def _sources(sources: Mapping[str, Any]) -> Iterator[str]:
    for table, listed in sources.items():
        if table not in TABLES:
            yield f"sources.{table}: no such table; allowed: {', '.join(sorted(TABLES))}"
            continue
        schema = TABLES[table]
        for number, source in enumerate(_list(listed)):
            for column in _mapping(_mapping(source).get("columns")):
                opened = schema.open_prefix is not None and str(column).startswith(schema.open_prefix)
                if column not in schema.columns and not opened:
                    where = f"sources.{table}.{number}.columns.{column}"
                    yield f"{where}: no such column; allowed: {', '.join(schema.columns)}"


def _pools(capacity: Mapping[str, Any]) -> Iterator[str]:
    names = [_mapping(pool).get("name") for pool in _list(capacity.get("pools"))]
    for name in sorted({str(name) for name in names if name is not None and names.count(name) > 1}):
        yield f"capacity.pools: two pools are named {name!r}; each needs a name of its own"


def _cost(data: Mapping[str, Any], run_here: Mapping[str, Any]) -> Iterator[str]:
    accounted = _mapping(data.get("accounted"))
    for name in sorted(str(name) for name in accounted):
        if name in run_here:
            yield f"accounted.{name}: is in models too; a model is either run by the pipeline or only accounted"
        if not MODEL_NAME.match(name) or name in RESERVED:
            yield f"accounted.{name}: a name is lower case letters, digits and _, and not {', '.join(RESERVED)}"
    models = {*run_here, *accounted, *RESERVED}
    for field in ("rules", "orchestrators"):
        names = [_mapping(entry).get("name") for entry in _list(data.get(field))]
        for name in sorted({str(name) for name in names if name is not None and names.count(name) > 1}):
            yield f"{field}: two are named {name!r}; each needs a name of its own"
    for number, rule in enumerate(_list(data.get("rules"))):
        model = _mapping(rule).get("model")
        if model is not None and model not in models:
            yield f"rules.{number}.model: no model {model!r}; there are: {', '.join(sorted(models))}"
    for number, each in enumerate(_list(data.get("orchestrators"))):
        for prefix, model in _mapping(_mapping(each).get("models")).items():
            if model not in models:
                where = f"orchestrators.{number}.models.{prefix}"
                yield f"{where}: no model {model!r}; there are: {', '.join(sorted(models))}"


def _model(name: str, block: Mapping[str, Any], sources: Mapping[str, Any]) -> Iterator[str]:
    task = str(block.get("task"))
    if not MODEL_NAME.match(name):
        yield f"models.{name}: a name is lower case letters, digits and _, found {name!r}"
    if name in RESERVED:
        yield f"models.{name}: this name is kept for work that serves every model; choose another"
    for trainer in ("trainer", "baseline"):
        family = _mapping(block.get(trainer)).get("family")
        if isinstance(family, str) and ":" not in family and FAMILY_TASKS.get(family) != task:
            fitting = ", ".join(sorted(known for known, fits in FAMILY_TASKS.items() if fits == task))
            yield f"models.{name}.{trainer}.family: found {family!r}; for a {task} model: {fitting}, or module:Class"
    for dimension in _mapping(block.get("important_slices")):
        if dimension not in _list(block.get("slices")):
            yield f"models.{name}.important_slices.{dimension}: is not in slices: {_list(block.get('slices'))}"
    if sources and task in NEEDED:
        yield from _columns(name, task, block, sources)


def _columns(name: str, task: str, block: Mapping[str, Any], sources: Mapping[str, Any]) -> Iterator[str]:
    for table in NEEDED[task]:
        if table not in sources:
            yield f"models.{name}: a {task} model needs sources.{table}, which is not there"
    described = {column for table in DESCRIBING[task] for column in _mapped(sources.get(table))}
    for field, more in (("features", set[str]()), ("slices", BUILT_IN[task])):
        for column in _list(block.get(field)):
            if column not in described | more:
                allowed = ", ".join(sorted(described)) or "none, since that source is not there"
                yield f"models.{name}.{field}: no source maps {column!r}; mapped are: {allowed}"


def _mapped(listed: Any) -> set[str]:
    return {str(column) for source in _list(listed) for column in _mapping(_mapping(source).get("columns"))}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
