"""Account ids as they may be shown to people who are not to know them."""

from __future__ import annotations

from mlcost_pipeline.settings import Settings, digest

_SHOWN = 2


def shown_account(account: str, settings: Settings) -> str:
    """The account id, or where the settings ask for it a mask that still tells accounts apart.

    >>> shown_account("123456789012", Settings(version=1, name="x", accounted={"m": {}}, mask_accounts=True))
    '12…12#ddb3'
    """
    if not settings.mask_accounts:
        return account
    mark = digest("account", settings.name, account, length=4)
    if len(account) <= 2 * _SHOWN + 1:
        return f"…#{mark}"
    return f"{account[:_SHOWN]}…{account[-_SHOWN:]}#{mark}"
