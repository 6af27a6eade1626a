"""mlcost.yaml → validated settings.

The whole file is validated at once and nothing is read at import. An error names the field's path, what was
found and what is allowed. Paths are relative to the yaml file and may hold ``${NAME}`` or ``${NAME:-default}``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from mlcost_pipeline.errors import SettingsError
from mlcost_pipeline.settings_faults import faults_of


class Block(BaseModel):
    """A block of mlcost.yaml: unknown fields are refused, values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("a time needs a zone, for example 2025-06-27T06:00:00Z")
    return value.astimezone(UTC)


UtcTime = Annotated[datetime, AfterValidator(_utc)]


class Condition(Block):
    """A row is kept, or a ``when`` holds, if the column passes exactly one comparison."""

    column: str
    equals: str | float | bool | None = None
    not_equals: str | float | bool | None = None
    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    matches: str | None = Field(None, description="regular expression that the whole text must match")
    starts_with: str | None = None
    not_null: bool | None = None

    @model_validator(mode="after")
    def _one_comparison(self) -> Condition:
        given = self.model_dump(exclude_none=True, exclude={"column"})
        if len(given) != 1:
            raise ValueError(f"give exactly one comparison for column {self.column!r}, found {sorted(given) or 'none'}")
        return self


class Choice(Block):
    """One branch of a column made from conditions."""

    when: list[Condition]
    value: str | float | bool


class Column(Block):
    """Where a column of ours comes from: their column, a constant, or a choice; then an optional transform."""

    column: str | None = None
    value: str | float | bool | None = None
    choices: list[Choice] | None = None
    otherwise: str | float | bool | None = Field(None, description="with choices: the value if none holds")
    transform: list[Literal["upper", "lower", "strip"]] = []
    day_origin: date | None = Field(None, description="the source column counts days; day 0 is this date")
    hour_column: str | None = Field(None, description="with day_origin: hours (0-24, fractional) to add")

    @model_validator(mode="after")
    def _one_origin(self) -> Column:
        if sum(x is not None for x in (self.column, self.value, self.choices)) != 1:
            raise ValueError("give exactly one of column, value, choices")
        return self


class Source(Block):
    """A file, a folder or a glob of CSV or Parquet that feeds one table."""

    path: str
    format: Literal["auto", "csv", "parquet"] = "auto"
    time_zone: str = Field("UTC", description="zone of times in the file that carry none")
    columns: dict[str, Column] = Field({}, description="their columns; without it, files already have the table's own")
    keep: list[Condition] = []
    null_values: list[str] = ["", "NULL"]
    complete_marker: str | None = Field(None, description="only files that stand beside <file><marker> are read")

    @model_validator(mode="before")
    @classmethod
    def _short_columns(cls, data: Any) -> Any:
        """``user_id: CustomerID`` is short for ``user_id: {column: CustomerID}``."""
        if isinstance(data, Mapping) and isinstance(data.get("columns"), Mapping):
            columns = {k: {"column": v} if isinstance(v, str) else v for k, v in data["columns"].items()}
            return {**data, "columns": columns}
        return data


class BillSource(Block):
    """A folder or file of billing exports."""

    path: str
    format: Literal["focus", "cur2", "cur_legacy", "azure_ea", "spot_feed"] = "focus"


class ChargeMatch(Block):
    """What a rule looks at; all that is given must hold. Texts are compared without case."""

    resource_prefix: str | None = Field(None, description="the resource id begins with this")
    service: str | None = Field(None, description="the service name is this")
    category: str | None = Field(None, description="the charge category is this")
    tags: dict[str, str] = Field({}, description="the charge has each of these tags with this value; * is any value")

    @model_validator(mode="after")
    def _looks_at_something(self) -> ChargeMatch:
        if not self.model_dump(exclude_none=True, exclude_defaults=True):
            raise ValueError("give at least one of resource_prefix, service, category, tags")
        return self


class Rule(Block):
    """Whose a charge is that no run, resource or mlcost tag names; the first rule that fits takes it whole."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,60}$")
    when: ChargeMatch
    model: str = Field(description="a model of this file, or platform for work that serves every model")
    stage: Literal["training", "serving", "features", "evaluation"]


class Orchestrator(Block):
    """Another Dagster instance whose materialisations are run records; nothing is installed there."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,40}$")
    url: str = Field(description="its GraphQL endpoint, for example https://dagster.example.com/graphql")
    token_env: str | None = Field(
        None, description="environment variable that holds the value of Dagster-Cloud-Api-Token"
    )
    resource_id: str | None = Field(None, description="the resource its runs occupy, where a run's tags name none")
    share_milli: int = Field(1000, ge=1)
    models: dict[str, str] = Field({}, description="asset key prefix → model, where an asset's tags name none")
    since: UtcTime | None = Field(None, description="runs that ended before this are not read")
    lost_after_hours: float = Field(
        24.0, gt=0, description="a run under way that wrote no event for so long is taken for lost"
    )


class Spend(Block):
    """A model's budget; a sensor warns when the month's forecast will pass it."""

    monthly_budget: Decimal | None = Field(None, gt=0)
    warn_at: float = Field(0.8, gt=0, le=1, description="share of the budget at which a person is told")


class ModelClock(Block):
    """Now, for one model: an origin and a rate over the machine's monotonic clock. Absent: real time."""

    origin: UtcTime
    rate: float = Field(1.0, gt=0, le=3600, description="simulated seconds per second")


class Trainer(Block):
    """What trains a model: a registered family or a ``module:Class`` of the team's own, and its parameters."""

    family: str
    params: dict[str, Any] = {}
    seed: int = 0
    error_retries: int = Field(1, ge=0, le=10, description="attempts allowed after an error of the job itself")
    checkpoint_seconds: float = Field(5.0, gt=0, description="wall seconds between two checkpoints")
    timeout_seconds: float = Field(3600, gt=0, description="wall seconds without a heartbeat before an attempt is lost")


class Windows(Block):
    """Days of data that features, training, evaluation and evidence look at."""

    training_days: int = Field(90, ge=1)
    holdout_days: int = Field(7, ge=1, description="newest days held out of training for the gate")
    evidence_days: int = Field(7, ge=1, description="length of the window that drift and decay are measured on")
    label_delay_days: int = Field(0, ge=0, description="age at which labels count as matured")


class Policy(Block):
    """Constants of the decision; each default is explained in docs/deciding.md."""

    min_new_rows: int = Field(1000, ge=1, description="new labelled rows needed since the training cut")
    min_new_share: float = Field(0.1, ge=0, description="... and at least this share of the training rows")
    min_new_positives: int = Field(40, ge=0, description="... and of the rare class (scoring models)")
    cooldown_days: int = Field(3, ge=0, description="days after a promotion in which nothing is retrained")
    max_age_days: int = Field(60, ge=1, description="age at which a model is retrained without other evidence")
    horizon_days: int = Field(14, ge=1, description="days over which a retrain must pay back")
    drift_threshold: float = Field(0.2, gt=0, description="PSI on reference quantiles that counts as material")
    drift_null_quantile: float = Field(0.999, gt=0.5, lt=1, description="quantile of PSI without drift to exceed")
    min_window_rows: int = Field(200, ge=1, description="rows in a window below which drift reads too_few")
    decay_confidence: float = Field(0.9, gt=0.5, lt=1, description="one-sided confidence of the decay's lower bound")
    value_per_outcome: Decimal = Field(Decimal(0), ge=0, description="money one outcome is worth; 0: not known")
    retrains_per_month: int = Field(8, ge=1, description="budget of retrains in 30 days")
    review_days: int = Field(14, ge=1, description="days for which a reviewer's verdict holds")


class Outcome(Block):
    """What the model earns, as a count with a versioned definition."""

    unit: Literal["added_clicks", "hits", "fraud_caught"]
    definition_version: str = "1"
    attribution_hours: float = Field(24, gt=0, description="a click counts for a lookup this long")
    hits_at: int = Field(10, ge=1)


class Serving(Block):
    """How precomputed lists are made and served."""

    list_length: int = Field(10, ge=1, le=1000)
    stored_length: int = Field(50, ge=1, le=5000, description="stored per user, so that seen items can be dropped")
    max_age_hours: float = Field(48, gt=0)
    popular_days: int = Field(28, ge=1)
    recommend_seen: bool = False
    keep_versions: int = Field(3, ge=2)
    fallback_share_bound: float = Field(0.5, gt=0, le=1)


class QualityBudget(Block):
    """How much outcome a candidate may cost, as a share of the incumbent's, overall and per slice."""

    overall: float = Field(0.02, ge=0, le=1)
    slice: float = Field(0.05, ge=0, le=1)


class ModelSettings(Block):
    """One model: what it is, what it sees, when it retrains, what it may cost."""

    task: Literal["recommendation", "scoring"]
    mode: Literal["observe", "act"] = "observe"
    first_day: date = Field(description="first day of data; partitions begin here")
    clock: ModelClock | None = None
    trainer: Trainer
    baseline: Trainer = Field(description="the simpler model that every report compares with")
    positive_kinds: list[str] = Field(["purchase"], description="interactions that count as an event of interest")
    features: list[str] = Field([], description="columns of transactions a scoring model may use")
    never_features: list[str] = []
    slices: list[str] = []
    important_slices: dict[str, list[str]] = {}
    windows: Windows = Windows()
    policy: Policy = Policy()
    outcome: Outcome
    serving: Serving = Serving()
    alerts_per_day: int | None = Field(None, ge=1, description="alert capacity a day (scoring models)")
    budget: QualityBudget = QualityBudget()
    spend: Spend = Spend()
    deploy_window_hours: float = Field(12, gt=0, description="a training job must end within this time")
    holdout_share: float = Field(0.1, ge=0, lt=1, description="share of users that is served the popular list")

    @model_validator(mode="after")
    def _fits_task(self) -> ModelSettings:
        if self.task == "scoring" and self.alerts_per_day is None:
            raise ValueError("a scoring model needs alerts_per_day")
        if self.task == "scoring" and self.outcome.unit != "fraud_caught":
            raise ValueError(f"outcome.unit of a scoring model is fraud_caught, found {self.outcome.unit}")
        if self.task == "recommendation" and self.outcome.unit == "fraud_caught":
            raise ValueError("outcome.unit of a recommendation model is added_clicks or hits, found fraud_caught")
        both = sorted(set(self.features) & set(self.never_features))
        if both:
            raise ValueError(f"features that are also in never_features: {', '.join(both)}")
        return self


class Accounted(Block):
    """A model that is trained and served elsewhere: its cost and its outcomes are accounted, nothing of it is run."""

    unit: str = Field("outcomes", description="what its rows in the source table outcomes count")
    spend: Spend = Spend()


class Pool(Block):
    """A place to train: a market, a price, and for the local provider a trace of availability to play."""

    name: str
    market: Literal["spot", "on_demand"]
    price_per_hour: Decimal = Field(gt=0)
    resource_kind: Literal["gpu", "cpu"] = "gpu"
    trace: str | None = Field(None, description="JSON trace file ({metadata: {gap_seconds}, data: [0 or 1, …]})")
    trace_seed: int | None = Field(None, description="instead of a file: a synthetic trace made from this seed")
    startup_seconds: float = Field(60, ge=0, description="simulated seconds from launch to first work")
    notice_seconds: float = Field(120, ge=0, description="simulated seconds between notice and kill")
    notice_lost_share: float = Field(0.0, ge=0, le=1)


class Capacity(Block):
    """Where training runs; the local provider starts processes on this machine."""

    provider: Literal["local"] = "local"
    pools: list[Pool]
    spot_policy: Literal["greedy", "on_demand"] = "greedy"

    @model_validator(mode="after")
    def _has_on_demand(self) -> Capacity:
        if not any(p.market == "on_demand" for p in self.pools):
            raise ValueError("one pool must have market: on_demand, the fallback in time for the deploy window")
        return self


class Worker(Block):
    """The machine that features, evaluation, batch scoring and reports occupy."""

    resource_id: str = "local-worker"
    price_per_hour: Decimal = Field(Decimal("0.192"), ge=0)
    capacity_milli: int = Field(2000, ge=1)
    share_milli: int = Field(1000, ge=1)


class Settings(Block):
    """All of mlcost.yaml."""

    version: Literal[1]
    name: str
    simulated: bool = Field(False, description="true: every report is marked SIMULATED")
    warehouse: str = "warehouse"
    currency: str = Field("USD", pattern="^[A-Z]{3}$")
    proxy_note: str | None = Field(None, description="a sentence every report carries about its data")
    sources: dict[str, list[Source]] = {}
    bills: list[BillSource] = []
    rules: list[Rule] = Field([], description="whose charges are that name nobody; part of the ledger's identity")
    orchestrators: list[Orchestrator] = []
    mask_accounts: bool = Field(False, description="true: reports and exports show account ids masked")
    models: dict[str, ModelSettings] = {}
    accounted: dict[str, Accounted] = {}
    capacity: Capacity = Capacity(pools=[Pool(name="local", market="on_demand", price_per_hour=Decimal("0.192"))])
    worker: Worker = Worker()
    prices: dict[str, Decimal] = Field({}, description="price per hour of a resource id or kind, for estimates")
    notify_webhook: str | None = None
    base: Path = Field(Path(), exclude=True, description="folder of the yaml file; set when loading")

    @model_validator(mode="after")
    def _has_models(self) -> Settings:
        if not self.owners:
            raise ValueError("name at least one model: in models (run by the pipeline) or in accounted (run elsewhere)")
        return self

    @property
    def owners(self) -> list[str]:
        """Every model that cost can be attributed to, by name."""
        return sorted({*self.models, *self.accounted})

    @model_validator(mode="before")
    @classmethod
    def _lists_of_sources(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and isinstance(data.get("sources"), Mapping):
            sources = {k: v if isinstance(v, list) else [v] for k, v in data["sources"].items()}
            return {**data, "sources": sources}
        return data

    def path(self, text: str) -> Path:
        """A path of the yaml file, made absolute; ``${NAME:-default}`` is filled in from the environment."""

        def fill(match: re.Match[str]) -> str:
            name, _, default = match.group(1).partition(":-")
            value = os.environ.get(name, default)
            if not value:
                raise SettingsError(f"{text!r} needs the environment variable {name}, which is not set")
            return value

        return (self.base / re.sub(r"\$\{([^}]+)\}", fill, text)).resolve()

    def model(self, name: str) -> ModelSettings:
        """The settings of one model; an unknown name is answered with the known ones."""
        if name in self.accounted:
            raise SettingsError(f"model {name!r} is accounted: it runs elsewhere, and here only its money is told of")
        if name not in self.models:
            known = ", ".join(sorted(self.models)) or "none, only what is accounted"
            raise SettingsError(f"no model {name!r} in mlcost.yaml; there are: {known}")
        return self.models[name]


def digest(*values: Any, length: int = 16) -> str:
    """A stable hash of plain values (canonical JSON, SHA-256): the root of every identity."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), default=str, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def load_settings(path: Path) -> Settings:
    """Read and validate one mlcost.yaml.

    Raises:
        SettingsError: every fault of the file at once, each with its path, what was found and what is allowed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise SettingsError(
            f"{path}: there is no such file; set MLCOST_CONFIG or --config, or write a first one with: mlcost init BILL"
        ) from error
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror}); set MLCOST_CONFIG or --config") from error
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: is not YAML: {error}") from error
    if not isinstance(data, dict):
        raise SettingsError(f"{path}: expected a mapping at the top, found {type(data).__name__}")
    faults = [f"  {fault}" for fault in faults_of(data)]
    try:
        settings = Settings.model_validate({**data, "base": path.resolve().parent})
    except ValidationError as error:
        raise SettingsError(f"{path}:\n" + "\n".join([*map(_explain, error.errors()), *faults])) from error
    if faults:
        raise SettingsError(f"{path}:\n" + "\n".join(faults))
    return settings


def _explain(fault: Any) -> str:
    where = ".".join(str(part) for part in fault["loc"]) or "(top level)"
    found = fault.get("input")
    shown = "" if isinstance(found, Mapping | BaseModel) else f", found {found!r}"
    return f"  {where}: {fault['msg']}{shown}"
