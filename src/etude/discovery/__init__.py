"""The outer loop: rules learned by gradient descent through agents' updates under them."""

from etude.discovery.meta_value import MetaValue, MetaValueConfig
from etude.discovery.metagradient import MetaGradient, meta_gradient
from etude.discovery.problem import Discovery, Lifetime, Problem

__all__ = [
    "Discovery",
    "Lifetime",
    "MetaGradient",
    "MetaValue",
    "MetaValueConfig",
    "Problem",
    "meta_gradient",
]
