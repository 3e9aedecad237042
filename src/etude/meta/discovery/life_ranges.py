"""Ranges in which lives differ, as they are stated: `learning_rate=1e-3..1e-2,width=32..128`."""

import dataclasses
import math
from typing import TypeVar

from etude.errors import UserError, did_you_mean
from etude.settings import as_whole

Number = TypeVar("Number", int, float)
Span = tuple[Number, Number]


@dataclasses.dataclass(frozen=True)
class Lives:
    """None where all lives are alike. Whatever is drawn is log-uniform."""

    learning_rate: tuple[float, float] | None = None
    entropy: tuple[float, float] | None = None
    batch: tuple[int, int] | None = None
    width: tuple[int, int] | None = None

    @property
    def differ_in_shape(self) -> bool:
        return self.batch is not None or self.width is not None

    @staticmethod
    def parse(text: str) -> "Lives":
        found: dict[str, tuple[float, float] | tuple[int, int]] = {}
        for part in filter(None, (x.strip() for x in text.split(","))):
            name, _, span = (x.strip() for x in part.partition("="))
            if name not in KINDS:
                known = did_you_mean(name, KINDS, f"they may in {', '.join(KINDS)}.")
                raise UserError(f"Lives cannot differ in {name!r}; {known}")
            if name in found:
                raise UserError(f"--lives says twice what {name} is.")
            found[name] = _span(part, span, KINDS[name])
        return Lives(**found)  # type: ignore[arg-type]


KINDS = {"learning_rate": float, "entropy": float, "batch": as_whole, "width": as_whole}
"""What lives may differ in, and how its numbers are read."""


def _span(part: str, text: str, read) -> tuple:
    low, dots, high = text.partition("..")
    try:
        ends = (read(low), read(high if dots else low))
    except ValueError:
        ends = (math.nan, math.nan)
    if not 0 < ends[0] <= ends[1] < math.inf:
        raise UserError(
            f"In --lives, {part!r} should be a range of positive numbers, such as "
            "learning_rate=1e-3..1e-2 or batch=16..64."
        )
    return ends
