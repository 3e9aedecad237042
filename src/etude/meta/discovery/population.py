"""A population of agents, each with its world and its lifetime, that a rule is learned from."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from etude.acting.jax_source import Actors, JaxSource
from etude.core.agent import Agent
from etude.core.learner import norm
from etude.core.optim import scale_by_adam
from etude.core.rule import Rule
from etude.core.trees import choose
from etude.core.types import Metrics, Rollout
from etude.envs import JaxTask
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.meta_value import MetaValue, MetaValueConfig
from etude.meta.discovery.problem import Discovery, Lifetime
from etude.meta.gradient import Window, meta_gradient, record, train
from etude.training.iteration import Training, World


class Member(eqx.Module):
    """An agent with its world. All of it starts anew when the agent's lifetime is over."""

    lifetime: Lifetime
    world: World
    validation_actors: Actors
    age: Int[Array, "*agents"]
    """Environment steps so far."""
    budget: Int[Array, "*agents"]
    """Environment steps of a whole lifetime."""


class Seat(eqx.Module):
    """A place in the population, and what outlives the agents that sit there."""

    member: Member
    optimiser_state: PyTree[Array]
    """Adam's moments of this seat's meta-gradients."""
    resets: Int[Array, "*agents"]
    skipped: Int[Array, "*agents"]
    """Meta-gradients that were not finite, and dropped."""
    key: Key[Array, "*agents"]


class RuleUpdate(eqx.Module):
    """What some agents' meta-gradients say about the rule: the sum of their Adam steps."""

    total: Rule
    agents: Int[Array, ""]
    """How many meta-gradients were finite and are in the sum."""


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    return jnp.stack([jnp.isfinite(x).all() for x in floats]).all()


@dataclasses.dataclass(frozen=True)
class Group:
    """All agents that live in one environment: they run as one vmapped program."""

    task: JaxTask
    config: DiscoverConfig
    training: Training
    problem: Discovery
    meta_optimiser: optax.GradientTransformation

    @staticmethod
    def create(task: JaxTask, config: DiscoverConfig) -> "Group":
        training = Training.create(task, config.training(task.name))
        # Adam on one vector, not on twenty arrays: the whole program is a sixth shorter to compile.
        training = dataclasses.replace(training, optimiser=optax.flatten(training.optimiser))
        problem = Discovery(training.optimiser, config.meta_entropy_cost)
        optimiser = optax.chain(optax.clip_by_global_norm(config.meta_clip), scale_by_adam())
        return Group(task, config, training, problem, optimiser)

    @property
    def validation(self) -> JaxSource:
        return JaxSource(self.task, self.config.validation_batch)

    @property
    def _value_config(self) -> MetaValueConfig:
        return MetaValueConfig(
            torso=self.config.value_torso,
            conv=self.config.conv,
            conv_kind=self.config.conv_kind,
            embedding=self.config.embedding,
            discount=self.config.value_discount,
            td_lambda=self.config.value_lambda,
            learning_rate=self.config.value_learning_rate,
        )

    @property
    def steps_per_meta_step(self) -> int:
        """Environment steps of each agent, those for validation among them."""
        config = self.config
        training = self.training.config.steps_per_update * config.inner_updates
        return training + config.validation_rollout * config.validation_batch

    # --- Lifetimes -------------------------------------------------------------------------------

    def new_member(self, rule: Rule, key: PRNGKeyArray) -> Member:
        """A fresh agent in fresh environments, with a lifetime of its own."""
        train_key, value_key, env_key, budget_key = jax.random.split(key, 4)
        start = self.training.init(rule, train_key)
        value = MetaValue.create(self.task.observation, self._value_config, key=value_key)
        budgets = jnp.asarray(self.config.budgets)
        index = jax.random.categorical(budget_key, -jnp.log(budgets.astype(float)))
        return Member(
            lifetime=Lifetime(start.learner, value),
            world=start.world,
            validation_actors=self.validation.reset(start.learner.agent, env_key),
            age=jnp.zeros((), jnp.int32),
            budget=budgets[index],
        )

    def new_seat(self, rule: Rule, key: PRNGKeyArray) -> Seat:
        """The first agents are taken to be of any age, so that they are not all reset at once."""
        member_key, age_key, key = jax.random.split(key, 3)
        member = self.new_member(rule, member_key)
        age = jax.random.randint(age_key, (), 0, member.budget)
        member = eqx.tree_at(lambda m: m.age, member, age)
        zero = jnp.zeros((), jnp.int32)
        return Seat(member, self.meta_optimiser.init(rule), zero, jnp.zeros_like(zero), key)  # type: ignore[arg-type]

    def replace(self, rule: Rule, seats: Seat, over: Bool[Array, " agents"]) -> Seat:
        """Fresh agents on those seats whose agents' time is over.

        Apart from `advance`, because it is not always needed, and because one program of both takes
        longer to compile than two.
        """
        keys = jax.vmap(lambda key: jax.random.split(key))(seats.key)
        fresh = jax.vmap(self.new_member, in_axes=(None, 0))(rule, keys[:, 0])
        member = choose(over, fresh, seats.member)
        return Seat(member, seats.optimiser_state, seats.resets + over, seats.skipped, keys[:, 1])

    # --- One meta-step ---------------------------------------------------------------------------

    def advance(self, rule: Rule, seats: Seat) -> tuple[RuleUpdate, Seat, Metrics]:
        """One meta-step of every agent here; each metric has one entry per agent.

        The metric `over` says whose time is over, for age or bad numbers: `replace` them.
        """
        step = jax.vmap(self._step, in_axes=(None, 0))
        updates, good, seats, metrics = step(rule, seats)
        total = jax.tree.map(lambda x: jnp.sum(x, axis=0), updates)
        over = ~good | (seats.member.age >= seats.member.budget)
        metrics |= {
            "over": over,
            "age": seats.member.age,
            "resets": seats.resets + over,
            "skipped": seats.skipped,
        }
        return RuleUpdate(total, jnp.sum(good)), seats, metrics

    def _step(self, rule: Rule, seat: Seat) -> tuple[Rule, Bool[Array, ""], Seat, Metrics]:
        """Recorded training, the meta-gradient through it, and what Adam makes of that."""
        play_key, validation_key, key = jax.random.split(seat.key, 3)
        member, window, validation, played = self.live(rule, seat.member, play_key, validation_key)
        result = meta_gradient(
            self.problem, rule, window, validation, mixed_mode=self.config.mixed_mode
        )
        good = all_finite((result.gradient, result.state, result.metrics))
        nothing = jax.tree.map(jnp.zeros_like, rule)
        gradient = choose(good, result.gradient, nothing)
        update, optimiser_state = self.meta_optimiser.update(gradient, seat.optimiser_state)
        update = choose(good, update, nothing)
        optimiser_state = choose(good, optimiser_state, seat.optimiser_state)
        member = eqx.tree_at(lambda m: m.lifetime, member, result.state)
        metrics = result.metrics | played | {"meta_gradient_norm": norm(result.gradient)}
        seat = Seat(member, optimiser_state, seat.resets, seat.skipped + ~good, key)
        return update, good, seat, metrics

    def live(
        self, rule: Rule, member: Member, play_key: PRNGKeyArray, validation_key: PRNGKeyArray
    ) -> tuple[Member, Window[Lifetime], Rollout, Metrics]:
        """An agent's part of a meta-step, before any gradient: it plays and learns. Returns it as
        it was, but for its world and age; its training, recorded; a rollout for validation; and
        how many episodes ended, with the sum of their returns."""
        train = self._train if self.config.collect == "fresh" else self._train_ahead
        return train(rule, member, play_key, validation_key)

    def _train(
        self, rule: Rule, member: Member, play_key: PRNGKeyArray, validation_key: PRNGKeyArray
    ) -> tuple[Member, Window[Lifetime], Rollout, Metrics]:
        """The inner updates, each on a batch played by the agent as it then is; the updated agent
        plays the rollout for validation."""

        def play(world: World, lifetime: Lifetime, key: PRNGKeyArray):
            agent = lifetime.learner.agent
            return self.training.play(agent, world, key, context=rule.context)

        keys = jax.random.split(play_key, self.config.inner_updates)
        window, world, played = train(
            self.problem, rule, member.lifetime, member.world, keys, play, self.config.record
        )
        agent = window.final.learner.agent
        member, validation = self._validate(rule, member, agent, validation_key)
        return self._lived(member, world), window, validation, _totals(played)

    def _train_ahead(
        self, rule: Rule, member: Member, play_key: PRNGKeyArray, validation_key: PRNGKeyArray
    ) -> tuple[Member, Window[Lifetime], Rollout, Metrics]:
        """The same with all experience, that for validation included, by the agent as it was
        before the updates."""
        agent = member.lifetime.learner.agent

        def one_batch(world: World, key: PRNGKeyArray):
            world, batch, metrics = self.training.play(agent, world, key, context=rule.context)
            return world, (batch, metrics)

        keys = jax.random.split(play_key, self.config.inner_updates)
        world, (rollouts, played) = jax.lax.scan(one_batch, member.world, keys)
        window = record(self.problem, rule, member.lifetime, rollouts, self.config.record)
        member, validation = self._validate(rule, member, agent, validation_key)
        return self._lived(member, world), window, validation, _totals(played)

    def _validate(
        self, rule: Rule, member: Member, agent: Agent, key: PRNGKeyArray
    ) -> tuple[Member, Rollout]:
        """A rollout for the meta-loss by the given agent, in the environments kept for that."""
        actors, rollout, _ = self.validation.collect(
            agent, member.validation_actors, key, self.config.validation_rollout, rule.context
        )
        return eqx.tree_at(lambda m: m.validation_actors, member, actors), rollout

    def _lived(self, member: Member, world: World) -> Member:
        """A meta-step older, in the world as it is now."""
        age = member.age + self.steps_per_meta_step
        return eqx.tree_at(lambda m: (m.world, m.age), member, (world, age))


def _totals(played: Metrics) -> Metrics:
    return {name: jnp.sum(played[name]) for name in ("episodes", "episode_return")}


@jax.jit
def apply_updates(
    rule: Rule, updates: list[RuleUpdate], learning_rate: Float[Array, ""] | float
) -> Rule:
    """The rule after a step along the mean of all agents' updates."""
    agents = jnp.maximum(sum(u.agents for u in updates), 1)
    scale = learning_rate / agents

    def step(leaf, *totals):
        return leaf - scale.astype(leaf.dtype) * sum(totals)

    return jax.tree.map(step, rule, *(u.total for u in updates))
