"""One name for one resource: bills write ids as ARNs, paths or bare ids, in differing case."""

from __future__ import annotations

import re

_EC2_INSTANCE = re.compile(r"arn:aws[\w-]*:ec2:[^:]*:[^:]*:instance/(i-[0-9a-f]+)")


def canonical(resource_id: str) -> str:
    """The id that runs and bills are joined on.

    >>> canonical("arn:aws:ec2:eu-west-1:100000000001:instance/i-2d1026706d7e")
    'i-2d1026706d7e'
    >>> canonical("/Subscriptions/AB/resourceGroups/Ml")
    '/subscriptions/ab/resourcegroups/ml'
    """
    text = resource_id.strip()
    if found := _EC2_INSTANCE.fullmatch(text):
        return found.group(1)
    # Azure compares resource ids without case, and its exports disagree with themselves.
    return text.lower() if text.lower().startswith("/subscriptions/") else text
