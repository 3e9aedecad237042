"""The environments that come along: names, actions and observations as a table, to be read without
importing JAX or the suites they come from. A test compares it with the environments themselves."""

import dataclasses
import difflib

from etude.errors import UserError
from etude.settings import split_spec


@dataclasses.dataclass(frozen=True)
class Listed:
    """An environment as it is without settings."""

    actions: int
    observation: tuple[int, ...]
    about: str = ""
    home: str = ""
    """Of our own: module and class."""


OURS = {
    "catch": Listed(
        3,
        (8, 8),
        "Catch the falling pellet (±1 at the end); `rows` and `columns` set the board's size.",
        "catch:Catch",
    ),
    "bandit": Listed(
        5,
        (1,),
        "Pull one of `arms` levers, `pulls` times; lever i pays 1 with probability "
        "(i + 1)/(arms + 1).",
        "bandit:Bandit",
    ),
    "krazy_world": Listed(
        4,
        (84,),
        "A grid of goals, ice, death and more, whose meaning each task sets anew: find out, "
        "then act.",
        "krazy_world:KrazyWorld",
    ),
    "maze": Listed(
        4,
        (15,),
        "Find the goal of a maze without loops; `size` is the side of the board, walls included.",
        "maze:Maze",
    ),
    "tabular_mdp": Listed(
        5,
        (10,),
        "`states` and `actions` whose rewards and transitions each task draws anew.",
        "tabular_mdp:TabularMDP",
    ),
    "random_walk": Listed(
        1,
        (5,),
        "A walk left or right by chance: the right end pays 1, the left end 0 or −1, in turn.",
        "random_walk:RandomWalk",
    ),
    "signal_chain": Listed(
        1,
        (10,),
        "`length` steps without a choice: in turn noise of mean 0, and a reward of `signal`.",
        "signal_chain:SignalChain",
    ),
}

GYMNAX = "gymnax/"
TRIALS = "trials/"
"""Before the name of a distribution of tasks: several episodes on each are an episode."""
THEIRS = {
    "CartPole-v1": Listed(2, (4,)),
    "Acrobot-v1": Listed(3, (6,)),
    "MountainCar-v0": Listed(3, (2,)),
    "Asterix-MinAtar": Listed(5, (10, 10, 4)),
    "Breakout-MinAtar": Listed(3, (10, 10, 4)),
    "Freeway-MinAtar": Listed(3, (10, 10, 7)),
    "Seaquest-MinAtar": Listed(6, (10, 10, 10)),
    "SpaceInvaders-MinAtar": Listed(4, (10, 10, 6)),
    "Catch-bsuite": Listed(3, (10, 5)),
    "DeepSea-bsuite": Listed(2, (8, 8)),
    "MemoryChain-bsuite": Listed(2, (3,)),
    "UmbrellaChain-bsuite": Listed(2, (3,)),
    "DiscountingChain-bsuite": Listed(5, (2,)),
    "SimpleBandit-bsuite": Listed(11, (1, 1)),
    "FourRooms-misc": Listed(4, (4,)),
    "MetaMaze-misc": Listed(4, (15,)),
    "BernoulliBandit-misc": Listed(2, (4,)),
    "GaussianBandit-misc": Listed(2, (4,)),
    "Pong-misc": Listed(3, (30, 40, 3)),
    "FrozenLake-misc": Listed(4, ()),
}
"""Of gymnax, those with discrete actions whose data comes along."""


def available() -> dict[str, Listed]:
    """All environments that come along."""
    return OURS | {f"{GYMNAX}{name}": listed for name, listed in THEIRS.items()}


def require_known(spec: str) -> None:
    """Refuses a name that is certainly a mistake. What gymnax or a module of the user's holds shows
    when it is imported."""
    name, _ = split_spec(spec)
    name = name.removeprefix(TRIALS)
    if name not in OURS and not name.startswith(GYMNAX) and ":" not in name:
        raise unknown(name)


def unknown(name: str) -> UserError:
    close = difflib.get_close_matches(name, available(), n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}?" if close else "`etude envs` lists them."
    return UserError(f"There is no environment {name!r}: {hint}")
