"""A notice to a person, each once: appended to a file in the warehouse and sent to a webhook if one is set."""

from __future__ import annotations

import json
import logging
import urllib.request

from mlcost_pipeline.settings import Settings, digest
from mlcost_pipeline.warehouse import Warehouse

log = logging.getLogger(__name__)


def notify(warehouse: Warehouse, settings: Settings, *, key: str, text: str) -> bool:
    """Tell a person `text`, unless a notice with this key went out before; True if it went out now.

    A webhook that cannot be reached never stops the work that had something to say: the notice stands in
    ``notices.jsonl`` either way, and the failure is logged.
    """
    if not warehouse.state.create(f"notices/{digest(key)}", {"key": key, "text": text}):
        return False
    with (warehouse.root / "notices.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"key": key, "text": text}, ensure_ascii=False) + "\n")
    if settings.notify_webhook:
        body = json.dumps({"text": text, "key": key}).encode()
        request = urllib.request.Request(
            settings.notify_webhook, data=body, headers={"Content-Type": "application/json"}
        )
        try:
            urllib.request.urlopen(request, timeout=5).close()
        except OSError as error:
            log.warning("notice %s was written to notices.jsonl but not sent: %s", key, error)
    return True
