"""What a page is made of, whatever it is about and however it is drawn.

All texts may come from someone else's folder: they are only ever shown as text.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from etude.text import figure

Tone = Literal["", "good", "bad", "open"]
MOST_TEXT = 300
"""Characters of one cell."""


class Cell(NamedTuple):
    """Of a table: what is read, what it is sorted by, and what it means."""

    text: str
    value: float | None = None
    """Sorts by the text if there is none."""
    tone: Tone = ""
    link: str = ""
    """The anchor of a part of the page."""


def number(x: float | None) -> Cell:
    return Cell(figure(x), None if x is None else float(x))


def text(x: object) -> Cell:
    words = str(x)
    return Cell(words if len(words) <= MOST_TEXT else f"{words[:MOST_TEXT]}…")


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows that the reader may sort by any column."""

    kind: ClassVar[str] = "table"
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    folded: bool = False
    """Shown on request alone."""

    @property
    def numeric(self) -> list[bool]:
        """Whether a column holds numbers."""
        by_column = [[row[i] for row in self.rows] for i in range(len(self.columns))]
        return [any(cell.value is not None for cell in column) for column in by_column]


@dataclasses.dataclass(frozen=True)
class Facts:
    """Names and values, in the order in which they matter."""

    kind: ClassVar[str] = "facts"
    title: str
    rows: dict[str, str]
    large: bool = False
    """The few figures that a reader comes for."""


@dataclasses.dataclass(frozen=True)
class Line:
    """A curve, with a band around it if it has one."""

    label: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    hidden: bool = False
    """Until the reader asks for it."""


@dataclasses.dataclass(frozen=True)
class Curves:
    """Lines along one axis."""

    kind: ClassVar[str] = "curves"
    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    levels: dict[str, float] = dataclasses.field(default_factory=dict)
    """To compare the lines with."""
    note: str = ""
    """What the lines and bands are."""
    small: bool = False
    """May stand beside others."""
    log_y: bool = False

    @property
    def described(self) -> str:
        """The figure in words."""
        told = [
            f"{line.label or self.title}: {figure(first)} at {figure(start)}, {figure(last)} at "
            f"{figure(end)}"
            for line in self.lines
            for start, first, end, last in [_ends(line)]
        ]
        return _listed(f"{self.y_label or self.title} by {self.x_label}", "line", told)

    @property
    def numbers(self) -> Table:
        """What can be read from the lines."""
        columns = ("line", "points", "first", "lowest", "highest", "last")
        return Table("", columns, [_row(line, self.title) for line in self.lines])


@dataclasses.dataclass(frozen=True)
class Bars:
    """Single figures side by side, each with its interval."""

    kind: ClassVar[str] = "bars"
    title: str
    y_label: str
    bars: dict[str, tuple[float, float, float]]
    """Mean, and the ends of its interval."""
    levels: dict[str, float] = dataclasses.field(default_factory=dict)
    note: str = ""
    small: bool = False

    @property
    def described(self) -> str:
        told = [f"{label}: {figure(mean)}" for label, (mean, _, _) in self.bars.items()]
        return _listed(self.y_label or self.title, "bar", told)

    @property
    def numbers(self) -> Table:
        rows = [[text(label), *map(number, found)] for label, found in self.bars.items()]
        return Table("", ("", "mean", "low", "high"), rows)


@dataclasses.dataclass(frozen=True)
class Film:
    kind: ClassVar[str] = "film"
    title: str
    gif: bytes
    alt: str


@dataclasses.dataclass(frozen=True)
class Paragraph:
    kind: ClassVar[str] = "text"
    text: str
    warns: bool = False


@dataclasses.dataclass(frozen=True)
class Commands:
    """What to type, by what it does."""

    kind: ClassVar[str] = "commands"
    title: str
    lines: dict[str, str]


Block = Table | Facts | Curves | Bars | Film | Paragraph | Commands


@dataclasses.dataclass(frozen=True)
class Part:
    """What a page tells of one folder, or of all of them."""

    title: str
    lead: str
    blocks: Sequence[Block]
    anchor: str = ""
    folded: bool = False


@dataclasses.dataclass(frozen=True)
class Page:
    title: str
    lead: str
    parts: Sequence[Part]


def _listed(what: str, unit: str, told: Sequence[str], most: int = 6) -> str:
    """The first of the parts of a figure, and how many there are."""
    shown = "; ".join(told[:most])
    rest = f"; and {len(told) - most} more" if len(told) > most else ""
    plural = "" if len(told) == 1 else "s"
    return f"{what}, {len(told)} {unit}{plural}. {shown}{rest}."


def _ends(line: Line) -> Sequence[float | None]:
    """Where a line starts and ends, of what is finite."""
    seen = np.flatnonzero(np.isfinite(line.y))
    if not len(seen):
        return None, None, None, None
    first, last = seen[0], seen[-1]
    return [float(x) for x in (line.x[first], line.y[first], line.x[last], line.y[last])]


def _row(line: Line, otherwise: str) -> list[Cell]:
    seen = line.y[np.isfinite(line.y)]
    found = (seen[0], seen.min(), seen.max(), seen[-1]) if len(seen) else [None] * 4
    points = Cell(f"{len(seen):,}", len(seen))
    return [text(line.label or otherwise), points, *map(number, found)]
