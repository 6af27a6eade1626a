"""Two deliveries of one month in one folder, which would be counted twice, told apart from the parts of one.

Each file of an account's month is sketched twice, by its charges and by their places: what was charged for, when and
with which tags, whatever it cost and whether it was invoiced. A part has places of its own; a newer delivery has the
places of the older one. The sketches are bottom-k (Bar-Yossef et al. 2002, Beyer et al. 2007): memory is constant.
Files that a manifest names are parts by its word, and are not asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from mlcost_pipeline.errors import BillError

SKETCH = 512
_SPACE = 2**64
#: With more charges than this to a place, files that share places may well be parts: places name no charge there.
_MANY = 1.25


@dataclass
class Sketch:
    """The least hashes of a file's charges and of their places, of one account and period."""

    rows: int = 0
    charges: set[int] = field(default_factory=set)
    places: set[int] = field(default_factory=set)

    def add(self, rows: int, charges: Iterable[int], places: Iterable[int]) -> None:
        self.rows += rows
        self.charges = set(sorted(self.charges.union(charges))[:SKETCH])
        self.places = set(sorted(self.places.union(places))[:SKETCH])

    @property
    def is_one_a_place(self) -> bool:
        """Whether hardly any two charges of the file have one place."""
        if len(self.places) < SKETCH:
            return self.rows <= _MANY * len(self.places)
        return self.rows * max(self.places) <= _MANY * SKETCH * _SPACE


def shared(ours: set[int], theirs: set[int]) -> tuple[int, float]:
    """Hashes seen in both of two sketches, and the share of the smaller set that is in the other one.

    Only hashes up to the point to which both sketches are whole are compared.
    """
    up_to = min((max(each) for each in (ours, theirs) if len(each) >= SKETCH), default=_SPACE)
    compared = min(sum(each <= up_to for each in hashes) for hashes in (ours, theirs))
    both = sum(each <= up_to for each in ours & theirs)
    return both, both / compared if compared else 0.0


class Repeats:
    """The files of one export, each held against those before it."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], list[tuple[Path, Sketch]]] = {}

    def hold(self, file: Path, key: tuple[str, str], sketch: Sketch) -> str | None:
        """A warning where a file may repeat another one's charges, and nobody but a person can say.

        Raises:
            BillError: it repeats most of them, at the same amounts or at others.
        """
        warning = None
        for other, theirs in self._known.setdefault(key, []):
            same, share = shared(sketch.charges, theirs.charges)
            if share > 0.5:
                raise _refused(file, key, other, "repeats most charges of")
            same, share = shared(sketch.places, theirs.places)
            if share <= 0.5:
                continue
            if same > 1 and sketch.is_one_a_place and theirs.is_one_a_place:
                raise _refused(file, key, other, "has most charges, at other amounts, of")
            warning = (
                f"{file}: {share:.0%} of what it charges for is in {other} too, and both count; if one is a newer "
                "delivery of the other, keep only the newest there and import again"
            )
        self._known[key].append((file, sketch))
        return warning


def _refused(file: Path, key: tuple[str, str], other: Path, repeats: str) -> BillError:
    return BillError(
        f"{file}: {repeats} account {key[0]}, period {key[1]} in {other}; files of a folder are parts of one export, "
        "so keep only the newest delivery of a period there; nothing was taken over"
    )
