"""The settings of networks and optimisers, in a module that settings of runs can import: it needs
no JAX."""

import dataclasses
from typing import Literal

Optimiser = Literal["adam", "rmsprop", "sgd"]
Surrogate = Literal["plain", "lvc", "dice"]
"""What stands in for the policy's likelihood in a policy gradient, for derivatives beyond it."""
Memory = Literal["none", "gru", "lstm"]
"""What an agent remembers with, from one step to the next."""


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """The shape of an agent's network, apart from the heads, which the rule decides."""

    torso: tuple[int, ...] = (512, 512)
    """Widths of the torso's layers."""
    conv: tuple[int, ...] = ()
    """Channels of residual convolution stages below the torso, for image observations."""
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
