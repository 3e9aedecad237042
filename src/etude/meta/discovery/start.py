"""The rule that a discovery starts from."""

from collections.abc import Callable, Sequence

from jaxtyping import PRNGKeyArray

from etude import rules
from etude.envs import Task
from etude.meta.discovery.config import DiscoverConfig
from etude.rules import Rule
from etude.rules.disco.rule import Disco, DiscoConfig
from etude.settings import malformed, replace_fields, split_spec

SIZES = {
    "tiny": DiscoConfig(
        prediction=32,
        hidden=32,
        rnn=16,
        embedding=8,
        channels=(16, 8),
        pi_channels=16,
        bins=61,
        max_value=30.0,
    ),
    "small": DiscoConfig(
        prediction=128, hidden=128, rnn=64, embedding=16, channels=(16, 2), pi_channels=16
    ),
    "paper": DiscoConfig(),
}
"""Sizes of the meta-network: for a laptop's minutes, for its hours, and the published one."""


def start_maker(config: DiscoverConfig, tasks: Sequence[Task]) -> Callable[[PRNGKeyArray], Rule]:
    """What makes the rule that a run starts from."""
    if config.from_ is None:
        chosen = replace_fields(SIZES[config.size], settings_in(config.rule_settings), "Rule disco")
        return lambda key: Disco(chosen, key=key)
    forms = {str(task.observation) for task in tasks}
    return rules.maker(config.from_, tasks[0].observation if len(forms) == 1 else None)


def settings_in(text: str) -> dict[str, str]:
    """Those of a rule, without its name."""
    spec = f"disco:{text}"
    if text and "=" not in text:
        raise malformed(spec, text)
    return split_spec(spec)[1] if text else {}
