"""A rule that learns while its agent does: θ follows η, and η follows a fixed reference.

In each window the agent is updated M times under the rule, each time on a trajectory it has just
played, and then plays once more. The loss of a fixed reference rule on that last trajectory is
differentiated through the updates, and the rule goes one step down.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree

from etude import rules
from etude.core import optim
from etude.core.agent import Agent
from etude.core.learner import Gradient, Learner, descend, loss_gradient, mean_loss, norm
from etude.core.types import Episodes, Metrics, Rollout
from etude.envs import Task
from etude.errors import UserError
from etude.meta.gradient import Window, meta_gradient, train
from etude.meta.outside import Recorded, stacked
from etude.meta.problem import Problem
from etude.rules import Rule
from etude.settings import join_spec, split_spec
from etude.training.config import OnlinePlan, TrainPlan
from etude.training.iteration import Training, TrainState, World, repeat

REVISE_FLOOR = 0.1
"""The weight of a revision is b₁ over the outer loss, of which less than this counts as this."""


class Life(eqx.Module):
    """All that the updates of a window change."""

    learner: Learner
    reference_state: PyTree[Array]


class UpdateRecord(eqx.Module):
    """What the outer loss wants to know of an agent update."""

    cost: Float[Array, "*N"]
    revision: Float[Array, "*N"]
    """The reference's loss of the agent before the update, on the trajectory it learns from."""
    metrics: Metrics


@dataclasses.dataclass(frozen=True)
class OnlineProblem(Problem[Rule, Life, UpdateRecord]):
    """The loss of a reference rule after updates under the rule that learns."""

    training: Training
    reference: Rule

    @property
    def online(self) -> OnlinePlan:
        online = self.training.config.online
        assert online is not None
        return online

    def inner(
        self, params: Rule, state: Life, experience: Rollout, gradient: Gradient = loss_gradient
    ) -> tuple[Life, UpdateRecord]:
        rule, rollout, learner = params, experience, state.learner
        targets, rule_state = rule.targets(learner.agent, learner.rule_state, rollout)
        cost = rule.target_cost(targets, learner.rule_state, rollout)
        revision = jnp.zeros_like(cost)
        if self.online.revise:
            revision, _ = self._reference_loss(learner.agent, state.reference_state, rollout)
        agent, optimiser_state, metrics = descend(
            rule, self.training.optimiser, learner, targets, rollout, gradient
        )
        learner = Learner(agent, optimiser_state, rule_state)
        return Life(learner, state.reference_state), UpdateRecord(cost, revision, metrics)

    def outer(
        self, params: Rule, state: Life, aux: UpdateRecord, experience: Rollout
    ) -> tuple[Float[Array, ""], tuple[Life, Metrics]]:
        loss, reference_state = self._reference_loss(
            state.learner.agent, state.reference_state, experience
        )
        total = loss + jnp.mean(aux.cost)
        if weight := self.online.revise:
            size = jnp.ones_like(loss)
            if self.online.revise_fades:
                size = jnp.maximum(jnp.abs(jax.lax.stop_gradient(loss)), REVISE_FLOOR)
            # The first of these agents is as it was before the window: no rule answers for it.
            total = total + weight / size * jnp.mean(aux.revision[1:])
        metrics = {name: jnp.mean(x, axis=0) for name, x in aux.metrics.items()}
        metrics |= {"outer_loss": loss, "meta_loss": total}
        after = Life(state.learner, reference_state)
        return total, jax.lax.stop_gradient((after, metrics))

    def _reference_loss(
        self, agent: Agent, state: PyTree[Array], rollout: Rollout
    ) -> tuple[Float[Array, ""], PyTree[Array]]:
        targets, state = self.reference.targets(agent, state, rollout)
        loss, _ = mean_loss(agent, self.reference, targets, rollout)
        return loss, state


COUNTED = ("episodes", "episode_return", "episode_length")
"""What adds up over a window; of anything else it is the mean over the updates that counts."""


def _over_window(played: Metrics, last: Metrics) -> Metrics:
    """Of all that was played: that of each update, stacked, and that for the outer loss."""
    means = {name: jnp.mean(x, axis=0) for name, x in played.items()}
    return means | {name: jnp.sum(played[name], axis=0) + last[name] for name in COUNTED}


class OnlineState(TrainState):
    """With what the rule learns by."""

    rule: Rule
    meta_optimiser_state: PyTree[Array]
    reference_state: PyTree[Array]

    @property
    def life(self) -> Life:
        return Life(self.learner, self.reference_state)


@dataclasses.dataclass(frozen=True)
class OnlineTraining:
    """How one agent is trained together with its rule: pure functions, as in `Training`."""

    problem: OnlineProblem
    meta_optimiser: optax.GradientTransformation

    @staticmethod
    def create(task: Task, config: TrainPlan) -> "OnlineTraining":
        if config.replay_share:
            raise UserError("A rule that learns online has no use for replay: --replay-share 0.")
        online = config.online
        assert online is not None
        if online.revise and online.inner_updates < 2:
            raise UserError("--revise looks at agents between two updates: --inner-updates 2.")
        problem = OnlineProblem(Training.create(task, config), reference_rule(online.outer))
        optimiser = optim.make_optimiser(online.meta_optimiser, online.meta_learning_rate)
        return OnlineTraining(problem, optimiser)

    def init(self, rule: Rule, key: PRNGKeyArray) -> OnlineState:
        require_heads(rule, self.problem, self.problem.training.task.num_actions)
        start = self.problem.training.init(rule, key)
        params: PyTree = rule
        meta_state = self.meta_optimiser.init(params)
        reference_state = self.problem.reference.init(start.learner.agent)
        return OnlineState(start.learner, start.world, start.key, rule, meta_state, reference_state)

    def iterate(self, state: OnlineState) -> tuple[OnlineState, Metrics]:
        """One window: M updates of the agent, one of the rule."""
        training, online, context = self.problem.training, self.problem.online, state.rule.context
        outer_key, key, keys = self.window_keys(state.key)

        def play(world: World, life: Life, key: PRNGKeyArray):
            return training.play(life.learner.player(state.rule), world, key, context=context)

        window, world, played = train(
            self.problem, state.rule, state.life, state.world, keys, play, recording="each"
        )
        player = window.final.learner.player(state.rule)
        world, last, last_played = training.play(
            player, world, outer_key, online.outer_rollout, context
        )
        return self._learned(state, key, window, world, last, _over_window(played, last_played))

    def window_keys(self, key: PRNGKeyArray) -> tuple[PRNGKeyArray, PRNGKeyArray, Key[Array, " M"]]:
        """For the outer rollout, for the next window, and for each update."""
        outer_key, key, *keys = jax.random.split(key, 2 + self.problem.online.inner_updates)
        return outer_key, key, jnp.stack(keys)

    def _learned(
        self,
        state: OnlineState,
        key: PRNGKeyArray,
        window: Window[Life],
        world: World,
        last: Rollout,
        played: Metrics,
    ) -> tuple[OnlineState, Metrics]:
        """The rule's step, after a window and the rollout for the outer loss."""
        result = meta_gradient(self.problem, state.rule, window, last)
        rule, meta_state = optim.apply_gradient(
            self.meta_optimiser, result.gradient, state.meta_optimiser_state, state.rule
        )
        metrics = result.metrics | played
        metrics |= {"meta_gradient_norm": norm(result.gradient)}
        after: Life = result.state
        state = OnlineState(after.learner, world, key, rule, meta_state, after.reference_state)
        return state, metrics

    def conclude(
        self, state: OnlineState, recorded: Recorded[Life], last: Rollout, episodes: Episodes
    ) -> tuple[OnlineState, Metrics]:
        """As `iterate`, after all is played outside JAX; the state has the world as it then is."""
        outer_key, key, _ = self.window_keys(state.key)
        last, replay_key = last.told_by(state.rule.context), jax.random.split(outer_key)[1]
        world, last, last_played = self.problem.training.take_in(
            state.world, last, episodes, replay_key
        )
        window = recorded.window(state.life)
        played = _over_window(stacked(recorded.played), last_played)
        return self._learned(state, key, window, world, last, played)

    def run(
        self, rule: Rule, state: OnlineState, number: int | Int[Array, ""], room: int
    ) -> tuple[OnlineState, Metrics]:
        """As `Training.run`. The state has its own rule; the one given is where it started."""
        del rule
        return repeat(self.iterate, state, number, room)


def require_heads(rule: Rule, problem: OnlineProblem, num_actions: int) -> None:
    """Refuses an outer loss that looks at outputs which agents under the rule do not have."""
    own, asked = (x.heads(num_actions) for x in (rule, problem.reference))
    missing = sorted({*asked.state, *asked.action} - {*own.state, *own.action})
    if missing:
        raise UserError(
            f"--outer {problem.online.outer} needs agents with the head {' and '.join(missing)}; "
            f"under this rule they have {', '.join([*own.state, *own.action])}."
        )


def reference_rule(spec: str) -> Rule:
    """The rule of the outer loss. Its values are plain numbers, like those of the rules that learn
    online, since they share an agent."""
    name, settings = split_spec(spec)
    if name == "actor_critic" and settings.get("bins", "0") != "0":
        raise UserError(f"--outer {spec}: values are plain numbers here, bins=0.")
    plain = {"bins": "0"} if name == "actor_critic" else {}
    reference = rules.load(join_spec(name, settings | plain))
    if jax.tree.leaves(reference):
        raise UserError(f"--outer must name a rule without parameters of its own, not {spec}.")
    return reference
