"""What is searched: settings of training and of the rule, in the ranges declared beside them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from etude import rules
from etude.errors import UserError
from etude.ranges import Choice, Range, Ranges
from etude.settings import Settings, as_text, split_spec, split_specs, unknown_setting
from etude.training.config import RANGES, RANGES_OF_RULES, RANGES_ONLINE
from etude.training.planning import plan_named
from etude.training.presets.files import RULE, LayerForm
from etude.tuning.config import TuneConfig

Suggest = Callable[[str, Range], Any]
"""Draws a value for the setting of that name."""


class Space(NamedTuple):
    training: Ranges
    rule: Ranges
    given: dict[str, str]
    """Settings of the rule that are not searched, as text."""

    @property
    def ranges(self) -> Ranges:
        """All of it, by the names that settings have in a search."""
        return self.training | {f"{RULE}.{name}": x for name, x in self.rule.items()}

    def draw(self, suggest: Suggest) -> LayerForm:
        """Settings from everywhere in the space."""
        own = _drawn(self.rule, lambda name, x: suggest(f"{RULE}.{name}", x), self.given)
        return LayerForm(envs=["*"], training=_drawn(self.training, suggest, {}), rule=own)


def _drawn(ranges: Ranges, suggest: Suggest, given: dict[str, str]) -> Settings:
    """A value for each setting that matters, those first on which others depend."""
    found: Settings = {}
    for name, x in sorted(ranges.items(), key=lambda item: item[1].when is not None):
        known = given | {key: as_text(value) for key, value in found.items()}
        if x.when is None or known.get(x.when[0]) == as_text(x.when[1]):
            found[name] = suggest(name, x)
    return found


def space_of(config: TuneConfig) -> Space:
    """The settings that are searched, as far as none of them is given."""
    _, given = split_spec(config.rule)
    kind = rules.class_named(config.rule)
    learns = plan_named(config.request(config.goals[0])).plan.learn_rule
    names = [*RANGES, *kind.searched, *(RANGES_ONLINE if learns else ())]
    every = RANGES | RANGES_OF_RULES | RANGES_ONLINE
    training = {name: every[name] for name in names if name not in config.fixed}
    own = {name: x for name, x in kind.ranges.items() if name not in given}
    space = Space(training, own, given)
    if config.search:
        space = _narrowed(space, split_specs(config.search))
    if not (space.training or space.rule):
        raise UserError("There is nothing left to search: every setting with a range is given.")
    return space


def _narrowed(space: Space, names: list[str]) -> Space:
    """Those of the names. One that the rule has, too, is the rule's."""
    known = [*space.rule, *space.training]
    if unknown := [name for name in names if name not in known]:
        raise unknown_setting("The search", unknown[0], known)
    own = {name: x for name, x in space.rule.items() if name in names}
    others = {k: x for k, x in space.training.items() if k in names and k not in own}
    return Space(others, own, space.given)


def in_words(range_: Range) -> str:
    """For a reader."""
    if isinstance(range_, Choice):
        text = ", ".join(map(as_text, range_.values))
    else:
        text = f"{range_.low:g} to {range_.high:g}" + (", log scale" if range_.log else "")
    return text if range_.when is None else f"{text}; where {range_.when[0]} is {range_.when[1]}"
