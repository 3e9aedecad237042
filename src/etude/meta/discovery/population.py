"""A population of agents, each with its world and its lifetime, that a rule is learned from."""

import abc
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.stages import Compiled, Lowered
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from etude.acting.collector import Collector
from etude.acting.jax_source import Actors, JaxSource
from etude.core.agent import Agent
from etude.core.learner import Learner, norm
from etude.core.players import Player
from etude.core.rule import Rule
from etude.core.trees import choose
from etude.core.types import Metrics, Rollout
from etude.envs import JaxTask, Task
from etude.errors import UserError
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.estimating import (
    LUCK_KEY,
    estimator_of,
    not_lived_again,
    rewards_per_episode,
)
from etude.meta.discovery.habits import Habits
from etude.meta.discovery.lives import draw_task, family_of, life_keys, require_drawable
from etude.meta.discovery.meta_value import MetaValue, MetaValueConfig
from etude.meta.discovery.problem import Discovery, Lifetime
from etude.meta.discovery.rule_optimiser import RuleOptimiser, RuleUpdate, all_finite
from etude.meta.discovery.seats import FOREVER, Member, Recent, Seat, step_keys
from etude.meta.evolution import Fitness
from etude.meta.gradient import Window, record, train
from etude.meta.outside import Outside, Recorded, stacked
from etude.training.iteration import Training, World


@dataclasses.dataclass(frozen=True)
class Group(abc.ABC):
    """All agents that live in one environment: they run as one vmapped program, or several."""

    task: Task
    config: DiscoverConfig
    training: Training
    problem: Discovery
    rule_optimiser: RuleOptimiser
    collectors: list[Collector] = dataclasses.field(default_factory=list, compare=False)
    """Outside JAX: those that play for training and for validation, once there are any."""

    @staticmethod
    def create(task: Task, config: DiscoverConfig) -> "Group":
        require_drawable(task, config)
        training = Training.create(task, config.training(task.name))
        # Adam on one vector, not on twenty arrays: the whole program is a sixth shorter to compile.
        training = dataclasses.replace(training, optimiser=optax.flatten(training.optimiser))
        entropy = config.meta_entropy_cost, config.relative_entropy
        problem = Discovery(training.optimiser, *entropy)
        optimiser = RuleOptimiser.create(config)
        if isinstance(task, JaxTask):
            return JaxGroup(task, config, training, problem, optimiser)
        for asked, what in (
            (config.overlap, "Windows overlap (--stride)"),
            (config.estimator != "gradient", "Evolution (--estimator) lives windows again"),
        ):
            if asked:
                raise UserError(f"{what} where JAX plays; {task.name} runs outside JAX.")
        return HostGroup(task, config, training, problem, optimiser)

    @abc.abstractmethod
    def lower(self, rule: Rule, seats: Seat) -> dict[str, Lowered]:
        """The programs that `meta_step` needs, traced."""

    @abc.abstractmethod
    def meta_step(
        self, programs: dict[str, Compiled], rule: Rule, seats: Seat
    ) -> tuple[RuleUpdate, Seat, Metrics]:
        """One meta-step of every agent here; each metric has one entry per agent. The old seats are
        used up.

        The metric `over` says whose time is over, for age or bad numbers: `replace` them.
        """

    def replaced(self, over: Bool[Array, " agents"]) -> None:
        """To be called when those agents were replaced."""
        for collector in self.collectors:
            collector.source.forget(np.asarray(over))

    def close(self) -> None:
        while self.collectors:
            self.collectors.pop().close()

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
            learn=self.config.meta_value,
        )

    @property
    def steps_per_meta_step(self) -> int:
        """New environment steps of each agent, those for validation among them."""
        config = self.config
        updates = config.inner_updates - config.overlap
        training = self.training.config.steps_per_update * updates
        return training + config.validation_rollout * config.validation_batch

    @property
    def steps_of_newborns(self) -> int:
        """How many more an agent's first window has."""
        return self.training.config.steps_per_update * self.config.overlap

    # --- Lifetimes -------------------------------------------------------------------------------

    def new_member(self, rule: Rule, key: PRNGKeyArray) -> Member:
        """A fresh agent in fresh environments, with a lifetime of its own."""
        task_key, habit_key = life_keys(key)
        lives, learning_rate = self.config.ranges, self.config.learning_rate
        habits = Habits.draw(lives, learning_rate, habit_key) if lives else None
        family = family_of(self.task, self.config)
        task = None if family is None else draw_task(family, task_key)
        return self.living_in(task)._new_member(rule, key, task, habits)

    def living_in(self, task: PyTree[Array]) -> "Group":
        """The group as an agent finds it whose environment has parameters of its own."""
        return self

    def _new_member(
        self, rule: Rule, key: PRNGKeyArray, task: PyTree[Array], habits: Habits | None
    ) -> Member:
        train_key, value_key, env_key, budget_key = jax.random.split(key, 4)
        start = self.training.init(rule, train_key)
        value = MetaValue.create(self.task.observation, self._value_config, key=value_key)
        budgets = jnp.asarray(self.config.budgets or (FOREVER,))
        index = jax.random.categorical(budget_key, -jnp.log(budgets.astype(float)))
        learner = self._expecting(rule, start.learner, budgets[index])
        return Member(
            lifetime=Lifetime(learner, value, habits),
            world=start.world,
            validation_actors=self._validation_actors(learner.agent, env_key),
            age=jnp.zeros((), jnp.int32),
            budget=budgets[index],
            recent=self._nothing_recent(rule, learner.agent) if self.config.overlap else None,
            task=task,
        )

    def _expecting(self, rule: Rule, learner: Learner, budget: Int[Array, ""]) -> Learner:
        """A new learner under a rule that knows how many updates its life will have, or 0 if it
        goes on for ever."""
        new = self.config.inner_updates - self.config.overlap
        windows = -(-budget // self.steps_per_meta_step)  # the last one is lived to its end
        updates = windows * new if self.config.budgets else 0
        state = rule.expect(learner.rule_state, updates)
        return Learner(learner.agent, learner.optimiser_state, state)

    def _nothing_recent(self, rule: Rule, agent: Agent) -> Recent:
        blank = self.training.blank_rollout(agent, rule.context, batch=self.config.batch)
        batches = jax.tree.map(lambda x: jnp.stack([x] * self.config.overlap), blank)
        return Recent(batches, jnp.zeros((), bool))

    def _validation_actors(self, agent: Agent, key: PRNGKeyArray) -> Actors | None:
        """Fresh environments for validation."""
        return None

    def new_seat(self, rule: Rule, key: PRNGKeyArray) -> Seat:
        """The first agents are taken to be of any age, so that they are not all reset at once, if
        agents are reset at all."""
        member_key, age_key, key = jax.random.split(key, 3)
        member = self.new_member(rule, member_key)
        if self.config.budgets:
            age = jax.random.randint(age_key, (), 0, member.budget)
            member = eqx.tree_at(lambda m: m.age, member, age)
        resets, skipped = (jnp.zeros((), jnp.int32) for _ in range(2))
        return Seat(member, self.rule_optimiser.of_agent(rule), resets, skipped, key)

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

    def _learned(
        self,
        rule: Rule,
        seat: Seat,
        key: PRNGKeyArray,
        member: Member,
        window: Window[Lifetime],
        validation: Rollout,
        played: Metrics,
        fitness: Fitness[Rule],
        luck: PRNGKeyArray,
    ) -> tuple[Rule, Bool[Array, ""], Seat, Metrics]:
        """The meta-gradient of recorded training, and what it adds to the rule's step."""
        estimator = estimator_of(self.config, rule)
        result = estimator(self.problem, rule, window, validation, fitness, luck)
        good = all_finite((result.gradient, result.state, result.metrics))
        update, optimiser_state = self.rule_optimiser.contribution(
            result.gradient, seat.optimiser_state, good
        )
        member = self._carried(member, window, result.state)
        metrics = result.metrics | played | rewards_of(window.experience)
        metrics |= {"meta_gradient_norm": norm(result.gradient)}
        seat = Seat(member, optimiser_state, seat.resets, seat.skipped + ~good, key)
        return update, good, seat, metrics

    def _summed(
        self, updates: Rule, good: Bool[Array, " agents"], seats: Seat, metrics: Metrics
    ) -> tuple[RuleUpdate, Seat, Metrics]:
        """What all agents have `_learned`, together."""
        total = jax.tree.map(lambda x: jnp.sum(x, axis=0), updates)
        over = ~good | (seats.member.age >= seats.member.budget)
        metrics |= {
            "over": over,
            "age": seats.member.age,
            "resets": seats.resets + over,
            "skipped": seats.skipped,
        }
        return RuleUpdate(total, jnp.sum(good)), seats, metrics

    def _carried(self, member: Member, window: Window[Lifetime], after: Lifetime) -> Member:
        """As the next window finds the agent: after this one or, if they overlap, where the next
        one begins. What validation adds to the running moments of advantages is then left behind,
        as it comes after that."""
        if not self.config.overlap:
            return eqx.tree_at(lambda m: m.lifetime, member, after)
        begin = self.config.stride
        lifetime = jax.tree.map(lambda x: x[begin], window.states).unpack()
        recent = jax.tree.map(lambda x: x[begin:], window.experience)
        known = jnp.ones((), bool)
        return eqx.tree_at(
            lambda m: (m.lifetime, m.recent), member, (lifetime, Recent(recent, known))
        )

    def _lived(self, member: Member, world: World) -> Member:
        """A meta-step older, in the world as it is now."""
        age = member.age + self.steps_per_meta_step
        if member.recent is not None:
            age += jnp.where(member.recent.known, 0, self.steps_of_newborns)
        return eqx.tree_at(lambda m: (m.world, m.age), member, (world, age))


@dataclasses.dataclass(frozen=True)
class JaxGroup(Group):
    """Agents whose environments JAX can trace."""

    task: JaxTask

    @property
    def validation(self) -> JaxSource:
        return JaxSource(self.task, self.config.validation_batch)

    def living_in(self, task: PyTree[Array]) -> "JaxGroup":
        if task is None:
            return self
        training = self.training.with_params(task)
        return dataclasses.replace(self, task=training.task, training=training)

    def _validation_actors(self, agent: Agent, key: PRNGKeyArray) -> Actors:
        return self.validation.reset(agent, key)

    def lower(self, rule: Rule, seats: Seat) -> dict[str, Lowered]:
        return {"advance": jax.jit(self.advance, donate_argnums=1).lower(rule, seats)}

    def meta_step(
        self, programs: dict[str, Compiled], rule: Rule, seats: Seat
    ) -> tuple[RuleUpdate, Seat, Metrics]:
        return programs["advance"](rule, seats)

    def advance(self, rule: Rule, seats: Seat) -> tuple[RuleUpdate, Seat, Metrics]:
        """A meta-step as one program."""
        return self._summed(*jax.vmap(self._step, in_axes=(None, 0))(rule, seats))

    def _step(self, rule: Rule, seat: Seat) -> tuple[Rule, Bool[Array, ""], Seat, Metrics]:
        play_key, validation_key, key = step_keys(seat)
        lived = self.live(rule, seat.member, play_key, validation_key)

        def fitness(rule: Rule, key: PRNGKeyArray) -> Float[Array, ""]:
            """Of the rule in the same window, with luck of its own for each key."""
            _, window, validation, _ = self.live(rule, seat.member, *jax.random.split(key))
            new = self.training.config.num_envs  # what is replayed comes after what is new
            experience = jax.tree.map(lambda x: x[:, :, :new], window.experience)
            return rewards_per_episode(experience, validation)

        luck = jax.random.fold_in(play_key, LUCK_KEY)
        return self._learned(rule, seat, key, *lived, fitness, luck)

    def live(
        self, rule: Rule, member: Member, play_key: PRNGKeyArray, validation_key: PRNGKeyArray
    ) -> tuple[Member, Window[Lifetime], Rollout, Metrics]:
        """An agent's part of a meta-step, before any gradient: it plays and learns. Returns it as
        it was, but for its world and age; its training, recorded; a rollout for validation; and
        how many episodes ended, with the sum of their returns."""
        group = self.living_in(member.task)
        train = group._train if self.config.collect == "fresh" else group._train_ahead
        return train(rule, member, play_key, validation_key)

    def _train(
        self, rule: Rule, member: Member, play_key: PRNGKeyArray, validation_key: PRNGKeyArray
    ) -> tuple[Member, Window[Lifetime], Rollout, Metrics]:
        """The inner updates, each on a batch played by the agent as it then is, unless the last
        window had it already; the updated agent plays the rollout for validation."""

        def play(world: World, lifetime: Lifetime, part: tuple[PRNGKeyArray, Recent | None]):
            key, before = part
            player = lifetime.learner.player(rule)
            new = self.training.play(player, world, key, context=rule.context)
            if before is None:
                return new
            # Nothing was played: playing costs little, so that it is not worth a branch.
            old = world, before.batches, jax.tree.map(jnp.zeros_like, new[2])
            return choose(before.known, old, new)

        keys = jax.random.split(play_key, self.config.inner_updates)
        parts = keys, self._known(member.recent)
        window, world, played = train(
            self.problem, rule, member.lifetime, member.world, parts, play, self.config.record
        )
        player = window.final.learner.player(rule)
        member, validation = self._validate(rule, member, player, validation_key)
        return self._lived(member, world), window, validation, _totals(played)

    def _known(self, recent: Recent | None) -> Recent | None:
        """What is known of each batch of a window before it is played."""
        if recent is None:
            return None
        new = self.config.stride

        def padded(x: Array) -> Array:
            return jnp.concatenate([x, jnp.zeros((new, *x.shape[1:]), x.dtype)])

        old = jnp.arange(self.config.inner_updates) < self.config.overlap
        return Recent(jax.tree.map(padded, recent.batches), old & recent.known)

    def _train_ahead(
        self, rule: Rule, member: Member, play_key: PRNGKeyArray, validation_key: PRNGKeyArray
    ) -> tuple[Member, Window[Lifetime], Rollout, Metrics]:
        """The same with all experience, that for validation included, by the agent as it was
        before the updates."""
        player = member.lifetime.learner.player(rule)

        def one_batch(world: World, key: PRNGKeyArray):
            world, batch, metrics = self.training.play(player, world, key, context=rule.context)
            return world, (batch, metrics)

        keys = jax.random.split(play_key, self.config.inner_updates)
        world, (rollouts, played) = jax.lax.scan(one_batch, member.world, keys)
        window = record(self.problem, rule, member.lifetime, rollouts, self.config.record)
        member, validation = self._validate(rule, member, player, validation_key)
        return self._lived(member, world), window, validation, _totals(played)

    def _validate(
        self, rule: Rule, member: Member, player: Player, key: PRNGKeyArray
    ) -> tuple[Member, Rollout]:
        """A rollout for the meta-loss by the given player, in the environments kept for that."""
        actors = member.validation_actors
        assert actors is not None
        actors, rollout, _ = self.validation.collect(
            player, actors, key, self.config.validation_rollout, rule.context
        )
        return eqx.tree_at(lambda m: m.validation_actors, member, actors), rollout


@dataclasses.dataclass(frozen=True)
class HostGroup(Group):
    """Agents whose environments are outside JAX.

    Such environments cannot be reset one by one: the agent that takes another's place goes on with
    the episodes that the other was playing, of which it remembers nothing. Nor does an agent play
    before its first update: its replay begins with what that update is made on.
    """

    @property
    def outside(self) -> Outside[Lifetime]:
        config = self.config
        how = (config.inner_updates, None, config.record, config.collect)
        return Outside(self.problem, self.training, *how)

    def lower(self, rule: Rule, seats: Seat) -> dict[str, Lowered]:
        lifetime, config = seats.member.lifetime, self.config
        programs, recorded = self.outside.lower(rule, lifetime, seats.member.world)
        sizes = config.validation_rollout, config.validation_batch
        blank = jax.vmap(lambda lifetime: self.outside.blank(lifetime, *sizes)[0], out_axes=1)
        validation = jax.eval_shape(blank, lifetime)
        conclude = jax.jit(self.conclude, donate_argnums=1)
        return programs | {"conclude": conclude.lower(rule, seats, recorded, validation)}

    def meta_step(
        self, programs: dict[str, Compiled], rule: Rule, seats: Seat
    ) -> tuple[RuleUpdate, Seat, Metrics]:
        play_keys, validation_keys, _ = jax.vmap(step_keys)(seats)
        training, validation = self._open(rule, seats, play_keys, validation_keys)
        member = seats.member
        keys = jax.vmap(jax.random.split, in_axes=(0, None))(play_keys, self.config.inner_updates)
        world, recorded, acting = self.outside.record(
            programs, rule, member.lifetime, member.world, training, keys
        )
        rollout, _ = validation.play(acting, validation_keys, self.config.validation_rollout)
        seats = eqx.tree_at(lambda s: s.member.world, seats, world)
        return programs["conclude"](rule, seats, recorded, rollout)

    def conclude(
        self, rule: Rule, seats: Seat, recorded: Recorded[Lifetime], validation: Rollout
    ) -> tuple[RuleUpdate, Seat, Metrics]:
        """A meta-step after all is played."""
        learned = jax.vmap(self._concluded, in_axes=(None, 0, 0, 1))
        return self._summed(*learned(rule, seats, recorded, validation))

    def _concluded(
        self, rule: Rule, seat: Seat, recorded: Recorded[Lifetime], validation: Rollout
    ) -> tuple[Rule, Bool[Array, ""], Seat, Metrics]:
        member = self._lived(seat.member, seat.member.world)
        window = recorded.window(seat.member.lifetime)
        validation, played = validation.told_by(rule.context), _totals(stacked(recorded.played))
        key, luck = step_keys(seat)[2], seat.key  # which nobody draws from
        lived = member, window, validation, played
        return self._learned(rule, seat, key, *lived, not_lived_again, luck)

    def _open(self, rule: Rule, seats: Seat, *keys: Key[Array, " agents"]) -> list[Collector]:
        learners, config = seats.member.lifetime.learner, self.config
        sizes = self.training.config.num_envs, config.validation_batch
        for key, number in list(zip(keys, sizes, strict=True))[len(self.collectors) :]:
            self.collectors.append(self.outside.open(rule, learners, key, number))
        return self.collectors


def _totals(played: Metrics) -> Metrics:
    return {name: jnp.sum(played[name]) for name in ("episodes", "episode_return")}


def rewards_of(experience: Rollout) -> Metrics:
    """Of all training batches of a window: the mean, and how many were good and bad."""
    real = (~experience.seam).astype(experience.reward.dtype)
    reward = experience.reward * real
    return {
        "reward": jnp.sum(reward) / jnp.maximum(jnp.sum(real), 1),
        "positive_rewards": jnp.sum(reward > 0),
        "negative_rewards": jnp.sum(reward < 0),
    }
