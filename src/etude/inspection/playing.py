"""What agents do and predict in whole episodes."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from etude.acting.jax_source import JaxSource
from etude.core.agent import Agent
from etude.core.distributions import entropy
from etude.core.learner import Learner
from etude.core.returns import categorical_mean
from etude.core.rule import Rule
from etude.core.types import Rollout
from etude.envs import JaxTask
from etude.errors import UserError
from etude.inspection.probes import Steps


@eqx.filter_jit
def rollouts(
    task: JaxTask, rule: Rule, learner: Learner, key: PRNGKeyArray, length: int, number: int
) -> Rollout:
    """`length` steps of `number` environments, from their first on."""
    source, (reset_key, key) = JaxSource(task, number), jax.random.split(key)
    player = learner.player(rule)
    actors = source.reset(player, reset_key)
    return source.collect(player, actors, key, length, rule.context)[1]


class Predictions(NamedTuple):
    """What an agent predicts at each step of a rollout."""

    entropy: Float[Array, "T B"]
    value: Float[Array, "T B"] | None
    features: dict[str, Float[Array, "T B n"]]


def predictions(rule: Rule, agent: Agent, rollout: Rollout) -> Predictions:
    """Logits without their mean, which no softmax sees; of predictions about actions, those for the
    one that was taken."""
    embedding = agent.unroll(rollout)
    state = {name: x[:-1] for name, x in agent.predict(embedding).items()}
    heads = rule.heads(agent.num_actions)
    features = {"policy": centred(state["pi"])}
    if "y" in heads.state:
        features["y"] = centred(state["y"])
    if "z" in heads.action:
        start = jax.tree.map(lambda x: x[:-1], agent.consider(embedding))
        features["z"] = centred(agent.predict_action(start, rollout.action)["z"])
    value = None
    if "q" in heads.action and (reach := getattr(getattr(rule, "config", None), "max_value", None)):
        read = lambda x: categorical_mean(x["q"], reach)  # noqa: E731
        q = jnp.moveaxis(agent.predict_actions(agent.consider(embedding), read), 0, -1)[:-1]
        value = jnp.sum(jax.nn.softmax(state["pi"]) * q, axis=-1)
        features["value"] = jnp.concatenate([value[..., None], q], axis=-1)
    return Predictions(entropy(state["pi"]), value, features)


def centred(logits: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    return logits - jnp.mean(logits, axis=-1, keepdims=True)


@eqx.filter_jit
def _played(
    task: JaxTask, rule: Rule, learner: Learner, key: PRNGKeyArray, length: int, number: int
) -> tuple[Rollout, Predictions]:
    rollout = rollouts(task, rule, learner, key, length, number)
    return rollout, predictions(rule, learner.agent, rollout)


def whole_episodes(
    task: JaxTask, rule: Rule, learner: Learner, key: PRNGKeyArray, length: int, number: int
) -> Steps:
    """The steps of those episodes that end within the rollouts."""
    steps = in_episodes(*_played(task, rule, learner, key, length, number))
    if len(np.unique(steps.episode)) < 8:
        raise UserError(
            f"Of {task.name} fewer than 8 episodes end within {length} steps of {number} "
            "environments, too few to probe: see --length."
        )
    return steps


def in_episodes(rollout: Rollout, found: Predictions) -> Steps:
    """Environment after environment; an episode that the end of the rollout cuts is left out."""
    ends = np.asarray(rollout.terminal | rollout.seam)
    before = np.cumsum(ends, axis=0) - ends
    whole = (before < ends.sum(axis=0)) & ~np.asarray(rollout.seam)
    number = before + (len(ends) + 1) * np.arange(ends.shape[1])

    def flat(x: Array) -> np.ndarray:
        return np.swapaxes(np.asarray(x, float), 0, 1)[whole.T]

    return Steps(
        episode=number.T[whole.T],
        reward=flat(rollout.reward),
        entropy=flat(found.entropy),
        value=None if found.value is None else flat(found.value),
        features={name: flat(x) for name, x in found.features.items()},
    )
