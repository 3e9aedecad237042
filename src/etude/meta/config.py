"""Settings of the gradient through updates, without JAX."""

from typing import Literal

Kept = Literal["full", "remat", "nested"]
"""What a backward pass through updates keeps in memory."""
