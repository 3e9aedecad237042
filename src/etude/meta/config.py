"""Settings of the estimators of meta-gradients, without JAX."""

from typing import Literal

Recording = Literal["each", "nested"]
"""Which states of a window are recorded: that before each update, or before every √N-th."""
Collect = Literal["fresh", "ahead"]
"""Who plays what is learned from: the agent as it then is, or as it was before the window."""
EstimatorKind = Literal["gradient", "es", "mixed"]
"""How what is meta-learned is told where to go: by gradients, evolution strategies, or both."""
Shaping = Literal["rank", "standard", "raw"]
"""What evolution makes of fitness: ranks, standardised numbers, or nothing."""
