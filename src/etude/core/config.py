"""The settings of networks and optimisers, in a module that settings of runs can import: it needs
no JAX."""

import dataclasses
from typing import Literal

Optimiser = Literal["adam", "rmsprop", "sgd"]
Surrogate = Literal["plain", "lvc", "dice"]
"""What stands in for the policy's likelihood in a policy gradient, for derivatives beyond it."""
Memory = Literal["none", "gru", "lstm"]
"""What an agent remembers with, from one step to the next."""
ConvKind = Literal["residual", "classic"]
"""IMPALA's residual stages, or the three layers of DQN."""


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """The shape of an agent's network, apart from the heads, which the rule decides."""

    torso: tuple[int, ...] = (512, 512)
    """Widths of the torso's layers."""
    conv: tuple[int, ...] = ()
    """Channels of the convolution below the torso, for all observations of height × width
    (× channels). Without any, images of bytes of 32 × 32 pixels and more are convolved with
    channels 16 32 32, grids of symbols from 8 × 8 on likewise; the rest is flattened."""
    model: int = 128
    """Size of the action model's LSTM."""
    head: int = 128
    """Hidden width of the action model's heads."""
    tanh: bool = False
    """Whether a tanh follows each layer of the torso, the last included, or a ReLU all but it."""
    memory: Memory = "none"
    """The recurrent cell between torso and heads, if any."""
    memory_size: int = 128
    """Units of that cell."""
    gated: bool = False
    """Whether what is read from memory is multiplied by a gate of what is seen."""
    conv_kind: ConvKind = "residual"
    """Residual stages, one per number of channels; or the classic three layers, which by default
    have channels 32 64 64. Grids of symbols always go through residual stages."""
    embedding: int = 16
    """Numbers that stand for each symbol of an observation."""
    frame_stack: int = 1
    """Observations of the same episode that the network sees together, the latest last."""
    value_peak: float = 0.0
    """How much the first logits of a categorical value fall from each bin to the next, away from
    that of 0. With 0, all of its bins are equally likely at first, however far out they are."""

    @property
    def convolves(self) -> bool:
        """Whether convolution is asked for, also of what is small or not made of bytes."""
        return bool(self.conv) or self.conv_kind == "classic"
