"""A page as one HTML file that loads nothing, from anywhere.

Whatever a folder holds is escaped, and the page's own policy lets no script run but those of ours,
which it knows by their digests.
"""

import base64
import functools
import gzip
import hashlib
import importlib.util
import json
import re
from pathlib import Path

import jinja2
import numpy as np
from markupsafe import Markup, escape

from etude.report.page import Bars, Block, Curves, Film, Line, Page
from etude.settings import Settings

DIGITS = 5
"""Of the numbers behind a curve: a screen shows no more."""
Number = float | int | None
Numbers = list[Number]
SCRIPTS = ("tables.js", "figures.js", "watch.js")


def render(page: Page, live: bool = False) -> str:
    """The whole page; a live one asks whoever serves it for news."""
    scripts = [_asset(name) for name in SCRIPTS if live or name != "watch.js"]
    settings: Settings = dict(
        page=page,
        live=live,
        style=_asset("style.css"),
        scripts=scripts,
        plotly=plotly_packed(),
        policy=policy([*scripts, plotly_source()], live),
    )
    return _templates().get_template("page.html").render(settings)


def render_main(page: Page) -> str:
    """What a live page changes as its folders do."""
    return _templates().get_template("main.html").render(page=page)


def policy(scripts: list[str], live: bool) -> str:
    """The Content-Security-Policy: these scripts, our style, pictures in the page, nothing else."""
    digests = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(x.encode()).digest()).decode()}'"
        for x in scripts
    )
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; "
        f"img-src data: blob:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


# --- Plotly ---------------------------------------------------------------------------------------


@functools.cache
def plotly_source() -> str:
    spec = importlib.util.find_spec("plotly")
    assert spec is not None and spec.submodule_search_locations  # Etude requires it
    (home,) = spec.submodule_search_locations
    return (Path(home) / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


@functools.cache
def plotly_packed() -> str:
    """Its source in a quarter of the room. The page unpacks it when the first figure is seen."""
    return base64.b64encode(gzip.compress(plotly_source().encode(), mtime=0)).decode()


# --- Templates ------------------------------------------------------------------------------------


@functools.cache
def _asset(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


@functools.cache
def _templates() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates", encoding="utf-8"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"breakable": breakable, "data": data, "gif": gif, "digest": digest}
    # No spaces, and no NaN, which JSON does not have; `tojson` escapes what HTML would read.
    found.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return found


def breakable(text: str) -> Markup:
    """Names of environments and rules are long words: they may be broken after these characters."""
    return Markup("<wbr>").join(map(escape, re.split(r"(?<=[:,=/_])", text)))


def data(figure: Curves | Bars) -> Settings:
    """What the script draws a figure from."""
    shared: Settings = {"y": figure.y_label, "levels": _finite(figure.levels)}
    if isinstance(figure, Bars):
        return shared | {"bars": [[x, *map(_number, y)] for x, y in figure.bars.items()]}
    axes: list[Numbers] = []
    lines = [_line(line, axes) for line in figure.lines]
    return shared | {"x": figure.x_label, "axes": axes, "lines": lines}


def _line(line: Line, axes: list[Numbers]) -> Settings:
    """Lines of one run share their points along x."""
    x = _numbers(line.x)
    if x not in axes:
        axes.append(x)
    told: Settings = {"label": line.label, "x": axes.index(x), "y": _numbers(line.y)}
    if line.low is not None and line.high is not None:
        told |= {"low": _numbers(line.low), "high": _numbers(line.high)}
    return told | ({"hidden": True} if line.hidden else {})


def _finite(levels: dict[str, float]) -> dict[str, Number]:
    return {label: _number(level) for label, level in levels.items() if np.isfinite(level)}


def _numbers(values: np.ndarray) -> Numbers:
    return [_number(x) for x in values.astype(float).tolist()]


def _number(x: float) -> Number:
    if not np.isfinite(x):
        return None
    short = float(f"{x:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def gif(film: Film) -> str:
    return f"data:image/gif;base64,{base64.b64encode(film.gif).decode()}"


def digest(block: Block) -> str:
    """By which a live page knows whether a block has changed."""
    plain = data(block) if isinstance(block, (Curves, Bars)) else repr(block)
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:16]
