"""Published experiments, rerun: `etude reproduce`."""

from etude.experiments import frodo, metagrad
from etude.experiments.base import Experiment, Options, Reproduction, Verdict, write

EXPERIMENTS: dict[str, Experiment] = frodo.EXPERIMENTS | metagrad.EXPERIMENTS

__all__ = ["EXPERIMENTS", "Experiment", "Options", "Reproduction", "Verdict", "write"]
