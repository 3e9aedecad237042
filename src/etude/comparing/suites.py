"""Environments to compare rules on, and the scores that theirs are set against. Nothing here needs
JAX."""

import functools
import math
import os
from pathlib import Path
from typing import NamedTuple

from etude import envs, plugins
from etude.errors import UserError, did_you_mean
from etude.runs.reading import JSON, read_bytes, read_json
from etude.settings import Settings, split_specs

SUITES = {
    "small": (
        "catch",
        "catch:rows=16,columns=9",
        "gymnax/CartPole-v1",
        "gymnax/Acrobot-v1",
        "gymnax/MountainCar-v0",
        "gymnax/DeepSea-bsuite",
        "gymnax/FourRooms-misc",
        "gymnax/MemoryChain-bsuite",
        "gymnax/MetaMaze-misc",
        "maze:size=6",
        "bandit",
    ),
    "minatar": tuple(
        f"gymnax/{game}-MinAtar"
        for game in ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
    ),
    # Those five of 57 whose scores predict the median over all (Aitchison et al. 2022).
    "atari-5": tuple(
        f"atari/{game}" for game in ("BattleZone", "DoubleDunk", "NameThisGame", "Phoenix", "Qbert")
    ),
    "procgen-4": tuple(f"procgen/{game}" for game in ("bigfish", "coinrun", "maze", "starpilot")),
}
SETTINGS: dict[str, Settings] = {
    "gymnax/MemoryChain-bsuite": dict(memory="gru"),
    "gymnax/MetaMaze-misc": dict(memory="gru"),
}
"""What all rules are trained with where there is something to be remembered."""
REFERENCES = Path(__file__).parent / "references.json"
FILE_BYTES = 1 << 20


class Entry(NamedTuple):
    """An environment of a comparison."""

    env: str
    random: float | None
    """The mean return of the uniform policy, if it is known."""
    strong: float | None
    """A score to be measured by, if there is one."""
    source: str
    """Where the two come from."""

    @property
    def settings(self) -> Settings:
        """Settings of training that all rules get here."""
        return SETTINGS.get(self.env, {})

    @property
    def is_normalised(self) -> bool:
        return self.random is not None and self.strong is not None


def find_entries(text: str, flag: str = "--envs") -> list[Entry]:
    """Those of a file, or of a list with commas in which suites stand for their environments."""
    if text not in SUITES and os.path.isfile(text):  # False, too, of a list too long for a name
        found = _read(Path(text))
    else:
        found = [known(env) for x in split_specs(text) for env in SUITES.get(x, (x,))]
    if not found:
        raise UserError(f"{flag} names no environment.")
    names = [entry.env for entry in found]
    if twice := next((x for x in names if names.count(x) > 1), None):
        raise UserError(f"{flag} names {twice} twice.")
    for name in names:
        _require_known(name)
    return found


def _require_known(name: str) -> None:
    """A suite or a file may have been meant."""
    try:
        envs.require_known(name)
    except UserError:
        if hint := did_you_mean(name, SUITES, "", cutoff=0.7):
            raise UserError(f"There is no environment and no suite {name!r}: {hint}") from None
        if "." in name:
            raise UserError(f"There is no environment and no file {name!r}.") from None
        raise


def known(env: str) -> Entry:
    """With what is known of it."""
    about = _references().get(env, {})
    source = about.get("source", "none: neither a random nor a strong score is known")
    return Entry(env, about.get("random"), about.get("strong"), source)


@functools.cache
def _references() -> dict[str, JSON]:
    return read_json(REFERENCES, form=dict[str, JSON])


def _read(path: Path) -> list[Entry]:
    """One environment per line, with a random and a strong score or without; # begins a comment."""
    try:
        lines = read_bytes(path, FILE_BYTES).decode().splitlines()
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a text file.") from None
    found = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) == 1:
            found.append(known(words[0]))
            continue
        scores = [_number(x) for x in words[1:]]
        if len(scores) != 2 or not all(map(math.isfinite, scores)) or scores[0] == scores[1]:
            raise UserError(
                f"Line {number} of {path} should be an environment, alone or followed by the "
                "scores of a random and of a strong policy."
            )
        random, strong = scores
        found.append(Entry(words[0], random, strong, f"line {number} of {path.name}"))
    plugins.require_trust(plugins.code_in([entry.env for entry in found]), str(path), None)
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
