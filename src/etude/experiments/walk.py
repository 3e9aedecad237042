"""Value prediction on the random walk whose left end changes: FRODO, and TD(λ) on a grid."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from etude import envs
from etude.core import optim
from etude.core.types import Metrics
from etude.envs.random_walk import RandomWalk
from etude.experiments.base import Line, Options, Say
from etude.experiments.online import followed
from etude.meta.online import OnlineState, OnlineTraining
from etude.rules.metagrad import MetaGrad, MetaGradConfig
from etude.settings import Settings
from etude.training.config import TrainRequest
from etude.training.iteration import Training, TrainState, seed_keys
from etude.training.planning import plan_named

State = TypeVar("State", TrainState, OnlineState)


class Revision(NamedTuple):
    """How much the rule answers for the agent before each update."""

    revise: float
    revise_fades: bool


NONE = Revision(0.0, True)
ITERATIONS_PER_SWITCH = 10
ENV = "random_walk"
SETTINGS: Settings = dict(env=ENV, batch=1, rollout=16, torso=(32,), optimiser="rmsprop")
FRODO: Settings = dict(
    # Which world it is shows at the end of an episode, which is true of the one before as well.
    rule="frodo:discount=1,observe=true,across=true",
    outer="actor_critic:discount=1,td_lambda=0.5,normalise=false",
    learning_rate=1e-2,
    meta_learning_rate=1e-3,
)
LAMBDAS = (0.0, 0.4, 0.8, 0.9, 1.0)
RATES: dict[optim.Optimiser, tuple[float, ...]] = {
    "rmsprop": (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2),
    "sgd": (0.25, 0.5, 1.0, 1.4, 2.0),
}
SURE = 20.0
"""A logit whose sigmoid is 1 as far as floats can tell."""


def iterations(options: Options) -> int:
    return ITERATIONS_PER_SWITCH * (4 if options.quick else 1000)


def by_switches(errors: np.ndarray) -> Line:
    """To be drawn: the switches so far, and the mean error over pieces of a hundredth of a run."""
    switches = len(errors) // ITERATIONS_PER_SWITCH
    pieces = min(100, switches)
    means = errors.reshape(pieces, -1, errors.shape[1]).mean(axis=1)
    return np.linspace(0, switches, pieces + 1)[1:], means


def frodo_errors(options: Options, revision: Revision = NONE, share: float = 1.0) -> np.ndarray:
    """The value error after each iteration of 96 steps: iterations × seeds."""
    env, number = RandomWalk(), round(share * iterations(options))

    def follow(training: OnlineTraining, state: OnlineState) -> Float[Array, " T"]:
        return errors(training.iterate, state, env, number)

    return followed(SETTINGS | FRODO | revision._asdict(), options, follow)


def best_fixed(options: Options, say: Say) -> tuple[np.ndarray, str]:
    """The errors of TD(λ) with the optimiser, the λ and the step size of the least mean error over
    the second half, and which these are."""
    found = {}
    for kind, rates in RATES.items():
        say(f"TD(λ) by {kind}, on a grid of {len(LAMBDAS)} × {len(rates)}…")
        grid = list(itertools.product(LAMBDAS, rates))
        by_setting = np.asarray(_fixed_errors(options, kind, jnp.asarray(grid)))
        for (td_lambda, rate), course in zip(grid, by_setting, strict=True):
            found[f"{kind}, λ = {td_lambda:g}, step size {rate:g}"] = course
    best = min(found, key=lambda x: np.nan_to_num(late(found[x]), nan=np.inf).mean())
    return found[best], best


def late(course: np.ndarray) -> np.ndarray:
    return course[len(course) // 2 :]


def _fixed_errors(
    options: Options, kind: optim.Optimiser, grid: Float[Array, "n 2"]
) -> Float[Array, "n T seeds"]:
    request = TrainRequest(rule="metagrad:tell=false", learn_rule=False, **SETTINGS)
    task, env = envs.make_jax(ENV), RandomWalk()
    training = Training.create(task, plan_named(request).plan)
    rule = MetaGrad(MetaGradConfig(tell=False, normalise=False))

    def one(setting, key):
        td_lambda, rate = setting
        logit = jnp.clip(jnp.log(td_lambda) - jnp.log1p(-td_lambda), -SURE, SURE)
        coefficients = jnp.stack([jnp.asarray(SURE), logit])
        fixed = eqx.tree_at(lambda r: r.coefficients.bias, rule, coefficients)
        mine = dataclasses.replace(training, optimiser=optim.make_optimiser(kind, rate))

        def six_updates(state):
            """As many steps as an iteration of FRODO."""
            return jax.lax.fori_loop(0, 6, lambda _, s: mine.iterate(fixed, s)[0], state), {}

        return errors(six_updates, mine.init(fixed, key), env, iterations(options))

    over_seeds = jax.vmap(one, in_axes=(None, 0), out_axes=1)
    keys = seed_keys(options.seed, options.seeds)
    return jax.jit(jax.vmap(over_seeds, in_axes=(0, None)))(grid, keys)


def errors(
    iterate: Callable[[State], tuple[State, Metrics]], state: State, env: RandomWalk, number: int
) -> Float[Array, " T"]:
    """The root of the mean squared value error over the states, after each of `number` iterations,
    against the values that held until then."""

    def step(state, _):
        state, _ = iterate(state)
        agent = state.learner.agent
        value = agent.predict(agent.torso(env.observations()))["value"][..., 0]
        actors = state.world.actors
        assert actors is not None
        clock = actors.env_state.clock[0]
        return state, jnp.sqrt(jnp.mean(jnp.square(value - env.true_values(clock - 1))))

    return jax.lax.scan(step, state, length=number)[1]
