"""Published experiments, rerun: `etude reproduce`."""

from etude.experiments import adaptation, frodo, metagrad, tables
from etude.experiments.base import Experiment, Options, Reproduction, Verdict, write

EXPERIMENTS: dict[str, Experiment] = (
    frodo.EXPERIMENTS | metagrad.EXPERIMENTS | adaptation.EXPERIMENTS | tables.EXPERIMENTS
)

__all__ = ["EXPERIMENTS", "Experiment", "Options", "Reproduction", "Verdict", "write"]
