"""Records as curves: as many points as a screen can show, with bands over seeds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from etude.report.page import Curves, Line, Paragraph
from etude.runs.figures import band, column, smooth
from etude.runs.folder import Record
from etude.text import count, figure

MOST_SEEDS = 10
"""That have a line of their own."""
MOST_NAMES = 24
"""Other numbers of the records that are drawn."""
BAND = (
    "Line: mean over {seeds}. Band: Student's 95% interval of the mean, cut at the lowest and "
    "highest seed."
)


class Detail(NamedTuple):
    """How much of each folder a page can hold: its size must not grow with their number."""

    points: int
    """Of a curve."""
    film_bytes: int

    @staticmethod
    def among(folders: int) -> "Detail":
        points = int(np.clip(15_000 // folders, 50, 400))
        return Detail(points, (3 << 20) // folders)


def thinned(x: np.ndarray, values: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """At most `points` rows: means over stretches, of what is finite in them. Rows without any
    finite value are left out."""
    seen = np.isfinite(values)
    rows = seen.any(axis=1)
    x, values, seen = x[rows], values[rows], seen[rows]
    if len(x) <= points:
        return x, values
    starts = np.linspace(0, len(x), points, endpoint=False).astype(int)
    lengths = np.diff([*starts, len(x)])
    number = np.add.reduceat(seen, starts, axis=0, dtype=int)
    total = np.add.reduceat(np.where(seen, values, 0.0), starts, axis=0)
    means = np.where(number, total / np.maximum(number, 1), np.nan)
    return np.add.reduceat(x, starts) / lengths, means


def line(label: str, x: np.ndarray, by_seed: np.ndarray, points: int) -> Line:
    """The mean over seeds (columns) with its band, if there are several."""
    with np.errstate(all="ignore"):  # numbers of any size may lie in a folder
        x, by_seed = thinned(x, by_seed, points)
        if not len(x):
            return Line(label, x, np.zeros(0))
        width = _width(len(x))
        mean, low, high = band(by_seed)
        if by_seed.shape[1] == 1:
            return Line(label, x, smooth(mean, width))
        low, high = np.maximum(low, np.nanmin(by_seed)), np.minimum(high, np.nanmax(by_seed))
        mean, low, high = (smooth(values, width) for values in (mean, low, high))
        return Line(label, x, mean, low, high)


def seed_lines(x: np.ndarray, by_seed: np.ndarray, points: int) -> list[Line]:
    """Hidden at first: to look at a seed that went another way."""
    seeds = by_seed.shape[1]
    if not 1 < seeds <= MOST_SEEDS:
        return []
    found = (line(f"seed {i}", x, by_seed[:, [i]], points) for i in range(seeds))
    return [Line(one.label, one.x, one.y, hidden=True) for one in found]


def about_lines(records: int, seeds: int, points: int) -> str:
    """What the lines are, for those who look at them."""
    told = [BAND.format(seeds=count(seeds, "seed"))] if seeds > 1 else []
    shown = min(records, points)
    if shown < records:
        told.append(f"{records:,} records are drawn as means over {shown:,} stretches.")
    if (width := _width(shown)) > 1:
        told.append(f"Smoothed over {width} points.")
    return " ".join(told)


def _width(points: int) -> int:
    return max(1, points // 50)


def scalars(records: Sequence[Record], but: Sequence[str]) -> dict[str, np.ndarray]:
    """All other single numbers of the records, by name."""
    names = [name for name in {k: 0 for r in records for k in r} if name not in but]
    found = {name: [r.get(name) for r in records] for name in names}
    plain = {k: v for k, v in found.items() if all(map(_is_number, v)) and any(map(_is_seen, v))}
    return {k: np.array(v, float) for k, v in list(plain.items())[:MOST_NAMES]}


def _is_number(x: object) -> bool:
    return x is None or (isinstance(x, (int, float)) and not isinstance(x, bool))


def _is_seen(x: object) -> bool:
    return x is not None


def diagnostics(
    records: Sequence[Record], points: int, x_name: str, x_label: str, but: Sequence[str]
) -> list[Curves | Paragraph]:
    """Small figures of the other numbers of the records, all losses in one; those that never
    change, in words."""
    x, found = column(records, x_name), scalars(records, but)
    constant = {name: y[0] for name, y in found.items() if len(y) > 1 and np.all(y == y[0])}
    losses = [name for name in found if name.endswith("loss") and name not in constant]
    groups = {"losses": losses} if losses else {}
    groups |= {name: [name] for name in found if name not in {*losses, *constant}}
    told: list[Curves | Paragraph] = [
        Curves(
            title=_words(title).capitalize(),
            x_label=x_label,
            y_label="",
            lines=[
                line(_words(name) if len(names) > 1 else "", x, found[name][:, None], points // 2)
                for name in names
            ],
            small=True,
        )
        for title, names in groups.items()
    ]
    if constant:
        values = ", ".join(f"{_words(name)} {figure(y)}" for name, y in constant.items())
        told.append(Paragraph(f"The same throughout: {values}."))
    return told


def _words(name: str) -> str:
    return name.replace("_", " ")
