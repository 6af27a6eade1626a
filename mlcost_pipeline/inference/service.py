"""The HTTP service: recommendations for a user, scores for payments, on loopback unless told otherwise.

A new version of lists or model is picked up without a restart. What was served is logged in the background; a crash
loses at most a second of it.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from mlcost_pipeline.clock import model_clock
from mlcost_pipeline.cost.runs import record_run
from mlcost_pipeline.errors import MlcostError, ModelError
from mlcost_pipeline.inference.guard import Guard, begin
from mlcost_pipeline.inference.lookup import Lookup
from mlcost_pipeline.inference.lookup_log import lookup_log, request_log
from mlcost_pipeline.inference.online import OnlineScorer, Score
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.settings_faults import PLATFORM
from mlcost_pipeline.warehouse import Warehouse

MAX_BODY_BYTES = 1_000_000
MAX_ROWS = 1000
FLUSH_SECONDS = 0.5
EVENTS_SECONDS = 10.0
POINTER_SECONDS = 0.25

T = TypeVar("T")


class Recommended(BaseModel):
    """Items to show, in order, and where they come from."""

    user: str
    items: list[str]
    tier: str
    reason: str
    version: str | None
    data_cut: datetime | None
    age_seconds: float | None
    arm: str
    request_id: str


class ScoreRequest(BaseModel):
    """Payments to score; fields of a row are described by ``GET /ready`` and checked by name and kind."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = Field(None, description="the scoring model, where there are several")
    rows: list[dict[str, str | float | bool | None]] = Field(min_length=1, max_length=MAX_ROWS)


class ScoreAnswer(BaseModel):
    """Scores in the order asked; `alert` compares with the threshold of the last scored day (null: none yet)."""

    model: str
    model_version: str
    threshold: float | None
    scores: list[Score]


class _Service:
    """What the handlers share."""

    def __init__(self, settings: Settings, warehouse: Warehouse) -> None:
        self.settings, self.warehouse = settings, warehouse
        tasks = {name: block.task for name, block in settings.models.items()}
        self.requests = request_log(warehouse, flush_seconds=FLUSH_SECONDS)
        self.logs = [self.requests]
        self.lookups = {name: self._lookup(name) for name, task in tasks.items() if task == "recommendation"}
        self.scorers = {name: OnlineScorer(warehouse, settings, name) for name, t in tasks.items() if t == "scoring"}

    def close(self) -> None:
        for log in self.logs:
            log.close()

    def _lookup(self, model: str) -> Lookup:
        log = lookup_log(self.warehouse, model, flush_seconds=FLUSH_SECONDS)
        self.logs.append(log)
        return Lookup(
            self.warehouse,
            self.settings,
            model,
            events_seconds=EVENTS_SECONDS,
            pointer_seconds=POINTER_SECONDS,
            log=log,
        )


def create_app(settings: Settings, warehouse: Warehouse) -> FastAPI:
    """The application; it holds no state but caches, so any number of replicas may run."""
    service = _Service(settings, warehouse)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    # The specification is at /openapi.json; the usual pages on it load scripts from elsewhere, so they are left out.
    app = FastAPI(title="mlcost", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    app.add_middleware(Guard, max_bytes=MAX_BODY_BYTES, log=service.requests)
    _errors(app)
    _health(app, service)
    _recommendations(app, service)
    _scores(app, service)
    return app


def serve(settings: Settings, warehouse: Warehouse, host: str = "127.0.0.1", port: int = 8080) -> None:
    """Serve until told to stop (SIGINT or SIGTERM): requests in flight are answered, logs are written out.

    The process is on record as a run: of the model, or of the platform where it serves several.
    """
    import uvicorn

    config = uvicorn.Config(
        create_app(settings, warehouse), host=host, port=port, access_log=False, ws="none", timeout_graceful_shutdown=10
    )
    model, worker = next(iter(settings.models)) if len(settings.models) == 1 else PLATFORM, settings.worker
    with _stopping_is_no_failure(), record_run(
        warehouse, model_clock(warehouse, settings, model), model=model, stage="serving", purpose="online",
        resource_id=worker.resource_id, share_milli=worker.share_milli, market="on_demand", price=worker.price_per_hour,
    ):  # fmt: skip
        uvicorn.Server(config).run()


@contextmanager
def _stopping_is_no_failure() -> Iterator[None]:
    """uvicorn, when it has stopped, raises the signal that stopped it again, which would end the process at once."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _errors(app: FastAPI) -> None:
    """What went wrong, in the words of the error; a body that does not fit is answered by where and what."""

    @app.exception_handler(MlcostError)
    async def explained(_: Request, error: MlcostError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=503)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        faults = [{"where": ".".join(map(str, e["loc"])), "what": e["msg"]} for e in error.errors()]
        return JSONResponse({"detail": faults}, status_code=422)


def _health(app: FastAPI, service: _Service) -> None:
    @app.get("/health")
    def health() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @app.get("/ready", responses={503: {"description": "not every model can answer in its best tier yet"}})
    def ready(response: Response) -> dict[str, Any]:
        """What each model would answer with: the live version of lists, the scoring model in production."""
        found: dict[str, Any] = {name: lookup.describe() for name, lookup in service.lookups.items()}
        found |= {name: scorer.describe() for name, scorer in service.scorers.items()}
        fine = all(about["ready"] for about in found.values())
        response.status_code = 200 if fine else 503
        return {"ready": fine, "models": found}


def _recommendations(app: FastAPI, service: _Service) -> None:
    @app.get("/recommendations/{user:path}")  # an id may hold a slash
    def recommendations(
        request: Request,
        user: Annotated[str, PathParameter(min_length=1, max_length=200)],
        model: Annotated[str | None, Query(max_length=60, description="where there are several")] = None,
    ) -> Recommended:
        """Items for one user; an unknown user is served the popular list."""
        name, lookup = _only(service.lookups, model, "recommendation")
        begin(request, f"{name}/recommendations", lookup.clock)
        return Recommended(user=user, **lookup.recommend(user).as_dict())


def _scores(app: FastAPI, service: _Service) -> None:
    @app.post("/score")
    def score(asked: ScoreRequest, request: Request) -> ScoreAnswer:
        """Scores of up to 1,000 payments by the model in production."""
        name, scorer = _only(service.scorers, asked.model, "scoring")
        begin(request, f"{name}/score", scorer.clock, len(asked.rows))
        try:
            scored = scorer.score(asked.rows)
        except ModelError as error:
            if scorer.describe()["ready"]:
                raise HTTPException(422, str(error)) from error
            raise
        return ScoreAnswer(model=name, model_version=scored.version, threshold=scored.threshold, scores=scored.scores)


def _only(having: dict[str, T], name: str | None, task: str) -> tuple[str, T]:
    """The named one, or the only one, with its name."""
    if name is None and len(having) == 1:
        return next(iter(having.items()))
    if name is not None and name in having:
        return name, having[name]
    names = ", ".join(sorted(having)) or "none"
    raise HTTPException(404, f"no {task} model {name!r}; there are: {names}")
