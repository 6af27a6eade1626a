"""The EC2 Spot Instance data feed: an early word on what spot instances cost, never a bill.

One line is one instance hour, tab-separated, in UTC; files come about hourly and hours late, and are never corrected
(opencost#882), so what they say is an estimate until the bill comes. ``Charge`` is money for what ran in that hour,
not a rate: an instance that ran two minutes of an hour at 0.210 has a charge of 0.007.
Field definitions: EC2 User Guide, "Track your Spot Instance costs using the Spot Instance data feed".
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from mlcost_pipeline.errors import BillError

SUFFIXES = (".gz", ".tsv")
FIELDS = ("Timestamp", "InstanceID", "MarketPrice", "Charge")
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?) ([A-Z]{3})")
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class SpotHour:
    """One hour of one instance, [hour_start, hour_end), shorter where the instance's next hour begins earlier.

    `charge` is money for what ran in the hour. `rate` is money per hour: the market price, or the charge where that is
    more (instances of a fixed duration are charged another price: awsdocs/amazon-ec2-user-guide#97).
    """

    instance_id: str
    hour_start: datetime
    hour_end: datetime
    charge: Decimal
    rate: Decimal
    currency: str


def open_bill(path: Path) -> NoReturn:
    """The data feed is no bill: nothing of it may be taken over as one."""
    raise BillError(
        f"{path}: the EC2 spot data feed is an estimate, not a bill, so it is not imported; name it under bills: with "
        "format spot_feed and it prices the runs that no bill has reached"
    )


def read_spot_feed(place: Path, instances: Collection[str] | None = None) -> list[SpotHour]:
    """The hours of a feed file, or of a folder of them, by instance and start; of the named instances only, or of all.

    An hour that stands in more than one file counts once, the newest version of it. A folder without files is an empty
    feed: none is written for an hour in which no spot instance ran.

    Raises:
        BillError: a file is cut off or no data feed, or a value is not what its field must hold; names file and line.
    """
    found: dict[tuple[str, datetime], tuple[tuple[str, str], SpotHour]] = {}
    for file in _files(place):
        for version, hour in _hours(file):
            if instances is not None and hour.instance_id not in instances:
                continue
            key, rank = (hour.instance_id, hour.hour_start), (version, file.name)
            if key not in found or found[key][0] <= rank:
                found[key] = (rank, hour)
    ordered = [hour for _, (_, hour) in sorted(found.items())]
    return [_until_next(hour, after) for hour, after in pairwise(ordered)] + ordered[-1:]


def _until_next(hour: SpotHour, after: SpotHour) -> SpotHour:
    if hour.instance_id != after.instance_id or after.hour_start >= hour.hour_end:
        return hour
    return replace(hour, hour_end=after.hour_start)


def _files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise BillError(f"{place}: is not there, expected a file or folder of the EC2 spot data feed")
    return sorted(file for file in place.rglob("*") if file.is_file() and file.name.endswith(SUFFIXES))


def _hours(file: Path) -> Iterator[tuple[str, SpotHour]]:
    fields: list[str] = []
    for number, line in _lines(file):
        if line.startswith("#Fields:"):
            fields = line.removeprefix("#Fields:").split()
            if missing := [name for name in FIELDS if name not in fields]:
                raise BillError(f"{file}, line {number}: field {', '.join(missing)} is missing; nothing was read")
        elif line and not line.startswith("#"):
            if not fields:
                raise BillError(f"{file}, line {number}: no #Fields line before it, so this is no EC2 spot data feed")
            values = line.split("\t")
            if len(values) != len(fields):
                raise BillError(
                    f"{file}, line {number}: expected {len(fields)} fields, found {len(values)}; is the file cut off?"
                )
            row = dict(zip(fields, values, strict=True))
            yield row.get("Version", ""), _hour(f"{file}, line {number}", row)


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    packed = file.suffix == ".gz"
    try:
        with file.open("rb") as raw, io.TextIOWrapper(gzip.GzipFile(fileobj=raw) if packed else raw, "utf-8") as stream:
            for number, line in enumerate(stream, 1):
                yield number, line.rstrip("\r\n")
    except (OSError, EOFError, UnicodeError, zlib.error) as error:
        raise BillError(f"{file}: {error}; is the file cut off? nothing was read") from error


def _hour(where: str, row: dict[str, str]) -> SpotHour:
    start = _time(where, row["Timestamp"])
    charge, currency = _amount(where, "Charge", row["Charge"])
    market, other = _amount(where, "MarketPrice", row["MarketPrice"])
    instance = row["InstanceID"].strip()
    if currency != other:
        raise BillError(f"{where}: Charge is in {currency} and MarketPrice in {other}; expected one currency")
    if not instance:
        raise BillError(f"{where}, field InstanceID: is empty, and it must not be")
    return SpotHour(instance, start, start + _HOUR, charge, max(market, charge), currency)


def _time(where: str, text: str) -> datetime:
    try:
        return datetime.strptime(text.strip(), "%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC)
    except ValueError:
        raise BillError(
            f"{where}, field Timestamp: expected a time such as 2026-03-10 12:00:00 UTC, found {text!r}"
        ) from None


def _amount(where: str, field: str, text: str) -> tuple[Decimal, str]:
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        raise BillError(f"{where}, field {field}: expected an amount such as 0.210 USD, found {text!r}")
    return Decimal(found.group(1)), found.group(2)
