"""A page into a file."""

import os
from collections.abc import Sequence
from pathlib import Path

from etude.errors import disk_errors
from etude.report.build import build
from etude.report.render import render
from etude.runs.arrays import write_atomically
from etude.runs.reading import shortened

NAME = "report.html"


def write_report(paths: Sequence[str], out: str | None) -> Path:
    """By default into the folder it is about, or here if there are several."""
    home = Path(paths[0] if len(paths) == 1 else ".")
    path = Path(os.path.realpath(out)) if out else home / NAME
    data = render(build(paths)).encode()
    with disk_errors(f"The report cannot be written to {shortened(path)}"):
        write_atomically(path, lambda file: file.write(data))
    return path
