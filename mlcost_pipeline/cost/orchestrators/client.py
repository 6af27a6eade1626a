"""A GraphQL endpoint asked over HTTP; every fault names the orchestrator and says what to do."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from mlcost_pipeline.errors import SourceError
from mlcost_pipeline.settings import Orchestrator

TIMEOUT_SECONDS = 20.0
_LONGEST_ANSWER = 64 * 1024 * 1024


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to whoever it names, and turn the question into another."""

    def redirect_request(self, *_: Any) -> None:
        return None


class GraphQL:
    """The endpoint of one orchestrator. Its token is sent as a header and appears in no text."""

    def __init__(self, orchestrator: Orchestrator, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._name, self._url, self._timeout = orchestrator.name, orchestrator.url, timeout_seconds
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if orchestrator.token_env is not None:
            token = os.environ.get(orchestrator.token_env)
            if not token:
                raise self._fault(f"needs the environment variable {orchestrator.token_env}, which is not set")
            self._headers["Dagster-Cloud-Api-Token"] = token
        if not orchestrator.url.startswith(("http://", "https://")):
            raise self._fault("expected a URL of http or https")
        if urllib.parse.urlsplit(orchestrator.url).username is not None:
            raise self._fault("its URL holds a user or password; name the variable of a token by token_env instead")

    def ask(self, query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        """The ``data`` of the answer.

        Raises:
            SourceError: it cannot be reached, refuses, or answers with something else than data.
        """
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(self._url, data=body, headers=self._headers)
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                text = answer.read(_LONGEST_ANSWER + 1)
                promised = int(answer.headers.get("Content-Length") or 0)
        except urllib.error.HTTPError as error:
            raise self._fault(f"answered {error.code} {error.reason}; {_hint(error.code)}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
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

    def unlike(self, error: Exception) -> SourceError:
        """The fault of an answer that lacks what was asked for, or has it in another form."""
        return self._fault(f"answered in another form than Dagster's ({type(error).__name__}: {str(error)[:200]})")

    def _fault(self, text: str) -> SourceError:
        parts = urllib.parse.urlsplit(self._url)
        place = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
        return SourceError(f"orchestrators.{self._name} ({place}): {text}; nothing of this page was stored")


def _hint(code: int) -> str:
    if code in (401, 403):
        return "is the token right?"
    if 300 <= code < 400:
        return "a redirect is not followed, because it would take the token along: name the URL that it leads to"
    return "it is asked again later" if code >= 500 else "is it the URL of its GraphQL endpoint?"
