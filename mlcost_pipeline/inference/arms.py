"""Which users are held out: a stable hash of model and user, so that a person is in one arm for good."""

from __future__ import annotations

import hashlib
from typing import Literal

Arm = Literal["treated", "holdout"]


def arm_of(model: str, user_id: str, holdout_share: float) -> Arm:
    """``holdout`` for `holdout_share` of all users. Models hold out different users, drawn independently."""
    text = f"{model}\x00{user_id}".encode("utf-8", "surrogatepass")
    number = int.from_bytes(hashlib.blake2b(text, digest_size=8, person=b"mlcost-arm").digest(), "big")
    return "holdout" if number < holdout_share * 2**64 else "treated"
