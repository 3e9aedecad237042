"""From folders to a page: a part for each, and one about all if there are several."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from etude.errors import UserError, disk_errors
from etude.report import adaptation, discovery, reproduction, training
from etude.report.curves import BAND, Detail
from etude.report.folders import Found, Told, opened, reproduction_in, score_cells
from etude.report.page import Block, Cell, Curves, Line, Page, Part, Table, number, text
from etude.runs.folder import CONFIG
from etude.runs.reading import is_file, shortened
from etude.text import count, duration

TELL: dict[str, Callable[[Found, Detail], Told]] = {
    "train": training.tell,
    "online": training.tell,
    "discover": discovery.tell,
    "adapt": adaptation.tell,
}
"""What is told of a run folder, by kind."""
MOST_OPEN = 3
"""Of several parts; more of them are opened on request."""


def build(paths: Sequence[str]) -> Page:
    detail = Detail.among(len(paths))
    told = [tell(path, detail) for path in paths]
    if len(told) == 1:
        part = told[0].part
        return Page(part.title, part.lead, [dataclasses.replace(part, anchor="run-1")])
    parts = [
        dataclasses.replace(x.part, anchor=f"run-{i}", folded=len(told) > MOST_OPEN)
        for i, x in enumerate(told, 1)
    ]
    places = len({str(x.row.where) for x in told})
    lead = f"{count(len(told), 'folder')} · {count(places, 'environment')}"
    return Page("Runs side by side", lead, [overview(paths, told, parts), *parts])


def tell(path: str, detail: Detail) -> Told:
    with disk_errors(f"{shortened(path)} cannot be read"):
        if not Path(path).is_dir():
            raise UserError(f"There is no folder {shortened(path)}.")
    if not is_file(Path(path) / CONFIG):
        if (summary := reproduction_in(path)) is None:
            raise UserError(
                f"{shortened(path)} is neither a run folder nor one of `etude reproduce`."
            )
        return reproduction.tell(path, summary, detail)
    found = opened(path)
    if found.kind not in TELL:
        raise UserError(f"{shortened(path)} is of a kind that this version of Etude does not know.")
    return TELL[found.kind](found, detail)


# --- About all of them ----------------------------------------------------------------------------


def overview(paths: Sequence[str], told: Sequence[Told], parts: Sequence[Part]) -> Part:
    names = [Path(path).name or path for path in paths]
    blocks: list[Block] = [*common(names, told), table(names, told, parts)]
    return Part("Overview", "", blocks, anchor="overview")


def table(names: Sequence[str], told: Sequence[Told], parts: Sequence[Part]) -> Table:
    columns = ("run", "what", "where", "seeds", "steps", "return", "low", "high", "time", "state")
    rows = [
        [
            text(name)._replace(link=part.anchor),
            text(x.row.what),
            text(x.row.where),
            _whole(x.row.seeds),
            _whole(x.row.steps),
            *score_cells(x.row.score),
            Cell("–") if x.row.seconds is None else Cell(duration(x.row.seconds), x.row.seconds),
            text(x.row.state),
        ]
        for name, x, part in zip(names, told, parts, strict=True)
    ]
    note = "Return: over the last episodes of training, or after adapting; with its 95% interval."
    return Table("All folders", columns, rows, note=note)


def _whole(x: object) -> Cell:
    return Cell(f"{x:,}", x) if isinstance(x, int) else number(None)


def common(names: Sequence[str], told: Sequence[Told]) -> list[Curves]:
    """One figure per environment."""
    figures: dict[tuple[str, str], list[tuple[str, Line]]] = {}
    for name, x in zip(names, told, strict=True):
        if x.curve is not None:
            where, what, line = x.curve
            figures.setdefault((where, what), []).append((name, line))
    small, note = len(figures) > 1, BAND.format(seeds="seeds")
    return [
        Curves(where, "environment steps", what, _labelled(lines), note=note, small=small)
        for (where, what), lines in figures.items()
    ]


def _labelled(lines: Sequence[tuple[str, Line]]) -> list[Line]:
    """Where labels are the same, names of folders tell lines apart."""
    labels = [line.label for _, line in lines]
    if len(set(labels)) == len(labels):
        return [line for _, line in lines]
    return [dataclasses.replace(x, label=f"{x.label} ({name})") for name, x in lines]
