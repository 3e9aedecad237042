"""A trained agent, to act with in a loop of one's own."""

import equinox as eqx
from jaxtyping import Array, Bool, Float, PyTree

from etude.core.agent import Agent
from etude.core.rule import Rule


class TrainedAgent(eqx.Module):
    """An agent together with the rule it learned under, which may tell it something to act on.

    `act` is compiled, and may be called within a compiled function, too.
    """

    agent: Agent
    rule: Rule

    def start(self, *batch: int) -> PyTree[Array]:
        """The memory of agents that have seen nothing, one for each of `batch` environments; a tree
        without leaves if the agent has no memory."""
        return self.agent.start(*batch)

    @eqx.filter_jit
    def act(
        self,
        memory: PyTree[Array],
        observation: PyTree[Array],
        first: Bool[Array, "*batch"] | None = None,
    ) -> tuple[PyTree[Array], Float[Array, "*batch actions"]]:
        """The memory afterwards, and the logits of the actions.

        Args:
            memory: What the last call returned; what `start` returns before the first one.
            observation: Of each of the environments, along the first axis.
            first: Where the observation is the first of an episode, so that the memory of what was
                before is cleared; by default nowhere.
        """
        context = self.rule.context
        told = None if context is None else context(observation)
        return self.rule.player(self.agent).act(memory, observation, first, context=told)
