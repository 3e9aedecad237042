"""`etude inspect`: what a rule has agents predict, how far ahead it looks, and what it reads."""

from typing import Annotated

import tyro

from etude.cli.asked import trust_named
from etude.cli.flags import no_default
from etude.cli.numbers import Whole
from etude.cli.streams import files_matter
from etude.errors import UserError
from etude.settings import SEED_RANGE, is_seed

TRAINED = "that of `etude train`"


def inspect(
    what: tyro.conf.Positional[str],
    env: Annotated[str | None, no_default(TRAINED)] = None,
    steps: Annotated[Whole | None, no_default(TRAINED)] = None,
    seeds: Annotated[Whole | None, no_default("1")] = None,
    length: Whole = 256,
    number: Whole = 32,
    seed: Whole = 0,
    out: Annotated[str | None, no_default("a new one under runs/")] = None,
    trust: Annotated[bool, no_default("no")] = False,
) -> None:
    """Look into a DiscoRL rule, and into what agents predict under it.

    Probes read returns, rewards, entropies and events to come off the predictions y and z, and off
    values and policies for comparison; a reward is changed to see how far back targets follow; and
    each input of the rule's network is held at its mean.

    Args:
        what: A training run, whose agents are looked into; or a rule (disco103, a rule file, a run
            of discovery), under which agents are trained first.
        env: Environment to train agents in.
        steps: Environment steps of their training.
        seeds: How many agents are trained.
        length: Steps that are played for the probes, in each environment.
        number: Environments that are played for the probes.
        seed: Random seed.
        out: Folder for what is found.
        trust: Import the environment or rule, if it is not Etude's, that a folder or file names:
            its code will run.
    """
    for name, x in (("steps", steps), ("seeds", seeds), ("length", length), ("number", number)):
        if x is not None and x < 1:
            raise UserError(f"--{name} must be at least 1, not {x}.")
    if not is_seed(seed):
        raise UserError(f"--seed must be {SEED_RANGE}, not {seed}.")
    files_matter()
    asked = {"env": env, "steps": steps, "seeds": seeds}
    given = {name: x for name, x in asked.items() if x is not None}
    trust_named(trust, given | {"rule": what})
    _inspect(what, given, length, number, seed, out)


def _inspect(
    what: str, training: dict, length: int, number: int, seed: int, out: str | None
) -> None:
    from etude.cli.terminal import print_inspection, say
    from etude.inspection import figures
    from etude.inspection.inspect import inspect, subject
    from etude.runs.folder import RunFolder

    agents = subject(what, training, say)
    found = inspect(agents, length, number, seed, say)
    folder = RunFolder.create(out, "inspect")
    figures.draw(found, folder.path / "inspection.png")
    folder.write_summary(found.summary())
    print_inspection(found)
    say(f"Figure and numbers: {folder.path}")
