"""The environments that come along: names, actions and observations as a table, to be read without
importing JAX or the suites they come from. A test compares it with the environments themselves."""

import importlib.util
from typing import NamedTuple

from etude.errors import UserError, did_you_mean
from etude.settings import malformed, split_spec


class Listed(NamedTuple):
    """An environment as it is without settings."""

    actions: int
    observation: tuple[int, ...]
    home: str = ""
    """The module and class of one of ours."""


class Suite(NamedTuple):
    """Environments of others, attached by a module of their own, `etude.envs.suites.NAME`."""

    about: str
    package: str
    """What must be installed, by the name it is imported by."""

    @property
    def installed(self) -> bool:
        return importlib.util.find_spec(self.package) is not None


SUITES = {
    "gym": Suite("any Gymnasium id with discrete actions", "gymnasium"),
    "atari": Suite("the 57 Atari games", "ale_py"),
    "procgen": Suite("16 games with levels made by chance", "envpool"),
    "crafter": Suite("survive, gather and build", "crafter"),
    "craftax": Suite("Crafter in JAX, and more of it", "craftax"),
    "nethack": Suite("the tasks of the NetHack Learning Environment", "nle"),
    "minigrid": Suite("MiniGrid and BabyAI, grid worlds", "minigrid"),
    "xminigrid": Suite("MiniGrid in JAX", "xminigrid"),
    "jumanji": Suite("puzzles, packing and routing in JAX", "jumanji"),
    "pgx": Suite("MinAtar and 2048 in JAX", "pgx"),
}
"""By what stands before the `/` in their environments' names."""


def how_to_install(suite: str) -> str:
    return f"pip install 'etude[{suite}]'"


def require_installed(suite: str) -> None:
    about = SUITES[suite]
    if not about.installed:
        raise UserError(
            f"{suite} needs {about.package}, which is not installed: {how_to_install(suite)}."
        )


OURS = {
    "catch": Listed(3, (8, 8), "etude.envs.catch:Catch"),
    "bandit": Listed(5, (1,), "etude.envs.bandit:Bandit"),
    "krazy_world": Listed(4, (84,), "etude.envs.krazy_world:KrazyWorld"),
    "maze": Listed(4, (15,), "etude.envs.maze:Maze"),
    "tabular_mdp": Listed(5, (10,), "etude.envs.tabular_mdp:TabularMDP"),
    "grid_world": Listed(4, (7, 7, 6), "etude.envs.grid_world:GridWorld"),
    "deep_sea": Listed(2, (10, 10), "etude.envs.deep_sea:DeepSea"),
    "delayed_chain": Listed(2, (22,), "etude.envs.delayed_chain:DelayedChain"),
    "any_catch": Listed(3, (8, 8), "etude.envs.any_catch:AnyCatch"),
    "random_walk": Listed(1, (5,), "etude.envs.random_walk:RandomWalk"),
    "signal_chain": Listed(1, (10,), "etude.envs.signal_chain:SignalChain"),
}
TASKS = (
    "krazy_world",
    "maze",
    "bandit",
    "tabular_mdp",
    "grid_world",
    "deep_sea",
    "delayed_chain",
    "any_catch",
)
"""Those of ours that are distributions of tasks."""

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


ONE_ACTION = "it has one action, so that there are values to be predicted but nothing to choose"
HARD = {
    "random_walk": ONE_ACTION,
    "signal_chain": ONE_ACTION,
    "deep_sea": "its one reward lies behind a row of moves to the right, each of which costs, so "
    "that some seeds never find it",
    f"{GYMNAX}MountainCar-v0": "nothing is rewarded before the goal, which acting at random does "
    "not reach within an episode",
    f"{GYMNAX}DeepSea-bsuite": "its one reward lies behind 8 moves to the right in a row, each of "
    "which costs, so that some seeds never find it",
    f"{GYMNAX}SimpleBandit-bsuite": "its arms are shuffled before every episode, which has one "
    "step, so that nothing can be known of them",
    f"{GYMNAX}UmbrellaChain-bsuite": "all rewards of an episode but the last are noise, which "
    "hides what is learned unless thousands of episodes are averaged",
}
"""Why an environment is known not to learn at its defaults."""
FORGETFUL = {
    "maze": "many places look the same",
    f"{GYMNAX}MemoryChain-bsuite": "what it asks for in the end was shown in the beginning",
    f"{GYMNAX}MetaMaze-misc": "where the goal is must be remembered from when it was found",
}
"""Why an environment is known not to learn unless agents have memory."""


def caution(spec: str, memory: bool = False) -> str | None:
    """Why an environment is known not to learn at its defaults, if it is."""
    name, _ = split_spec(spec)
    if name in FORGETFUL and not memory:
        return f"{FORGETFUL[name]}, for which agents need --memory gru."
    return f"{HARD[name]}." if name in HARD else None


def require_known(spec: str) -> None:
    """Refuses a name that is certainly a mistake. What gymnax or the user's module holds shows only
    when it is imported."""
    name, _ = split_spec(spec)
    if strange := next((x for x in name if x in "=,"), None):
        raise UserError(f"There is no environment {name!r}: no name has a {strange!r}.")
    own_name, colon, rest = name.removeprefix(TRIALS).partition(":")
    suite = own_name.partition("/")[0]
    if own_name in OURS or own_name.startswith(GYMNAX):
        if rest.islower():  # a class, in a module of the same name, would have a capital
            raise malformed(spec, rest)
    elif not colon and suite not in SUITES:
        raise unknown(name)


def unknown(name: str) -> UserError:
    names = [*available(), *(TRIALS + tasks for tasks in TASKS)]
    hint = did_you_mean(name, names, "`etude envs` lists them.", cutoff=0.4)
    return UserError(f"There is no environment {name!r}: {hint}")


_ATARI_GAMES = """
Alien Amidar Assault Asterix Asteroids Atlantis BankHeist BattleZone BeamRider Berzerk Bowling
Boxing Breakout Centipede ChopperCommand CrazyClimber Defender DemonAttack DoubleDunk Enduro
FishingDerby Freeway Frostbite Gopher Gravitar Hero IceHockey Jamesbond Kangaroo Krull KungFuMaster
MontezumaRevenge MsPacman NameThisGame Phoenix Pitfall Pong PrivateEye Qbert Riverraid RoadRunner
Robotank Seaquest Skiing Solaris SpaceInvaders StarGunner Surround Tennis TimePilot Tutankham
UpNDown Venture VideoPinball WizardOfWor YarsRevenge Zaxxon
"""
ATARI_GAMES = [*_ATARI_GAMES.split()]
"""The 57 that are played in the literature."""
