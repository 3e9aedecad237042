"""What the sources claim beyond what the experiments here test."""

from typing import NamedTuple

DISCO = "Oh et al. 2025, Nature 648"
FRODO = "Xu et al. 2020, arXiv 2007.08433"
EXPLORE = "Stadie et al. 2018, arXiv 1803.01118"
TABLES = "Duan et al. 2016, arXiv 1611.02779"


class Untested(NamedTuple):
    source: str
    claim: str
    why: str


LARGE = "57 games of 200M frames each are out of reach of two cores"
UNTESTED = (
    Untested(DISCO, "Disco57 reaches an interquartile mean of 13.86 on Atari", LARGE),
    Untested(
        DISCO,
        "Disco103 reaches 0.96 on ProcGen, 14.6 on Crafter (20M steps), 1114 on NetHack",
        "20M steps and more with the published networks, which `etude train --preset paper` has",
    ),
    Untested(
        DISCO,
        "On Atari: 11.6 with 57 games to discover in, 3.4 with 57 grid worlds; 2.9 without values, "
        "5.0 without predictions",
        "discoveries with 128 agents; `disco-ablations` and `disco-scaling` ask the same of Catch",
    ),
    Untested(
        DISCO,
        "What y and z predict in Ms Pacman: large rewards and entropies to come",
        "takes agents that have learned Ms Pacman; `disco-predictions` asks the same of Catch",
    ),
    Untested(FRODO, "FRODO on 57 Atari games, against IMPALA (plots only)", LARGE),
    Untested(
        EXPLORE,
        "A human reaches 2.7 goals in Krazy World",
        "nobody was asked to play",
    ),
    Untested(
        TABLES,
        "RL² learns visual navigation in ViZDoom mazes",
        "a simulator that is not among our suites; `mazes` has grids of walls",
    ),
)
