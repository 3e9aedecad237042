"""What an observation is made of, where its shape and type do not say."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Symbols:
    """A leaf of a task's `observation`: whole numbers below `number`, each of which stands for
    something."""

    shape: tuple[int, ...]
    dtype: np.dtype
    number: int
