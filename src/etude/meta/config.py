"""Settings of the gradient through updates, without JAX."""

from typing import Literal

Recording = Literal["each", "nested"]
"""Which states of a window are recorded: that before each update, or before every √N-th."""
Collect = Literal["fresh", "ahead"]
"""Who plays what is learned from: the agent as it then is, or as it was before the window."""
