"""What an observation is made of: arrays, images and symbols. Importing this needs no JAX."""

import dataclasses

import numpy as np
from numpy.typing import DTypeLike


@dataclasses.dataclass(frozen=True)
class Symbols:
    """A leaf of an observation's form: whole numbers below `number`, each of which stands for
    something, like a key or a wall, so that their order means nothing.

    It goes wherever shapes and types of observations go, in place of a `ShapeDtypeStruct`.
    """

    shape: tuple[int, ...]
    dtype: DTypeLike
    number: int

    def __post_init__(self):
        object.__setattr__(self, "dtype", np.dtype(self.dtype))

    @property
    def ndim(self) -> int:
        return len(self.shape)
