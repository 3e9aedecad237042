"""What a search maximises: half the area under the learning curve, half its end.

The end alone is noisy, and does not tell a setting that learned and collapsed from one that never
learned; the area alone favours a quick start over a good end. A search over several environments
takes the mean of their normalised scores: 0 is the uniform policy, 1 a stated strong score.
"""

from collections.abc import Sequence

import numpy as np

from etude.runs.folder import Record

OBJECTIVE = "half the area under the curve of the last 100 episodes' return, half its end"
RUNGS = 10
"""Equal parts of a training, after each of which a trial may be pruned."""


def curve_score(records: Sequence[Record], end: float) -> float | None:
    """The score of a learning curve up to `end` steps; None if no episode has ended by then. Where
    none has ended yet, the return is taken to be that of the first ones."""
    seen = [
        (x["steps"], _mean(x["last_returns"] if "last_returns" in x else x["returns"]))
        for x in records
    ]
    seen = [(steps, value) for steps, value in seen if 0 < steps <= end]
    points = [(steps, value) for steps, value in seen if value is not None]
    if not points:
        return None
    steps, values = np.array([(0.0, points[0][1]), *points]).T
    area = float(np.trapezoid(values, steps) / steps[-1])
    return 0.5 * area + 0.5 * float(values[-1])


def _mean(returns: Sequence[float | None]) -> float | None:
    """Over those seeds of which an episode has ended."""
    found = [x for x in returns if x is not None]
    return float(np.mean(found)) if found else None
