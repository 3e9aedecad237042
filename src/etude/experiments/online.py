"""Rules that learn online, each seed's training followed by a compiled program."""

from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Array

from etude import envs, rules
from etude.experiments.base import Options
from etude.meta.online import OnlineState, OnlineTraining
from etude.settings import Settings
from etude.training.config import TrainRequest
from etude.training.iteration import rule_keys, seed_keys
from etude.training.planning import plan_named


def followed(
    settings: Settings, options: Options, follow: Callable[[OnlineTraining, OnlineState], Array]
) -> np.ndarray:
    """What `follow` finds in a training from its first state on; the seeds are the second axis."""
    plan = plan_named(TrainRequest(**settings)).plan
    task = envs.make_jax(plan.env)
    training = OnlineTraining.create(task, plan)
    make = rules.maker(plan.rule, task.observation)

    def one_seed(rule_key, key):
        return follow(training, training.init(make(rule_key), key))

    keys = seed_keys(options.seed, options.seeds)
    return np.asarray(jax.jit(jax.vmap(one_seed, out_axes=1))(rule_keys(keys), keys))
