"""A GraphQL endpoint asked over HTTP; every fault names the orchestrator and says what to do."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from mlcost_pipeline.errors import SourceError
from mlcost_pipeline.settings import Orchestrator

TIMEOUT_SECONDS = 20.0
_LONGEST_ANSWER = 64 * 1024 * 1024


class GraphQL:
    """The endpoint of one orchestrator. Its token is sent as a header and appears in no text."""

    def __init__(self, orchestrator: Orchestrator, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._name, self._url, self._timeout = orchestrator.name, orchestrator.url, timeout_seconds
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if orchestrator.token_env is not None:
            token = os.environ.get(orchestrator.token_env)
            if not token:
                raise self._fault(f"needs the environment variable {orchestrator.token_env}, which is not set")
            self._headers["Dagster-Cloud-Api-Token"] = token
        if not orchestrator.url.startswith(("http://", "https://")):
            raise self._fault(f"expected a URL of http or https, found {orchestrator.url!r}")

    def ask(self, query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        """The ``data`` of the answer.

        Raises:
            SourceError: it cannot be reached, refuses, or answers with something else than data.
        """
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(self._url, data=body, headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:
                text = answer.read(_LONGEST_ANSWER + 1)
                promised = int(answer.headers.get("Content-Length") or 0)
        except urllib.error.HTTPError as error:
            hint = "; is the token right?" if error.code in (401, 403) else "; is it the URL of its GraphQL endpoint?"
            raise self._fault(f"answered {error.code} {error.reason}{hint}") from None
        except (OSError, http.client.HTTPException) as error:
            said = getattr(error, "reason", None) or error
            raise self._fault(f"cannot be read ({type(error).__name__}: {said}); it is asked again later") from None
        if len(text) < min(promised, _LONGEST_ANSWER):
            raise self._fault(f"cannot be read (broke off at {len(text)} of {promised} bytes); it is asked again later")
        if len(text) > _LONGEST_ANSWER:
            raise self._fault(f"answered with more than {_LONGEST_ANSWER} bytes")
        try:
            found = json.loads(text)
        except ValueError:
            raise self._fault("answered with no JSON; is it the URL of its GraphQL endpoint?") from None
        if not isinstance(found, dict) or found.get("errors") or not isinstance(found.get("data"), dict):
            said = str(found.get("errors", found) if isinstance(found, dict) else found)[:300]
            raise self._fault(f"did not answer the question: {said}; is its Dagster older than 1.9?")
        data: dict[str, Any] = found["data"]
        return data

    def expect(self, found: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
        """`found` if it is of the GraphQL type `kind`, else its message as an error."""
        if found.get("__typename") != kind:
            raise self._fault(f"answered {found.get('__typename')}: {str(found.get('message'))[:300]}")
        return found

    def _fault(self, text: str) -> SourceError:
        return SourceError(f"orchestrators.{self._name} ({self._url}): {text}; nothing of this page was stored")
