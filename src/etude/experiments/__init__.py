"""Published experiments, rerun: `etude reproduce`."""

from etude.experiments.base import (
    SHORT_VERSION,
    Experiment,
    Options,
    Reproduction,
    Verdict,
    write,
)

FRODO = "Xu et al. 2020, arXiv 2007.08433, section 5"
METAGRAD = "Xu, van Hasselt, Silver 2018, arXiv 1805.09801"
ADAPTATION = "Stadie et al. 2018, arXiv 1803.01118"
DISCO = "Oh et al. 2025, Nature 648"
TABLES = "Duan et al. 2016, arXiv 1611.02779"

# They are imported when they are run: a list of them should not have to wait for JAX.
EXPERIMENTS = {
    "frodo-catch": Experiment("FRODO learns to bootstrap on Catch.", FRODO, "frodo:run_catch"),
    "frodo-random-walk": Experiment("FRODO follows values that change.", FRODO, "frodo:run_walk"),
    "frodo-extension": Experiment(
        "FRODO that also answers for what the agent learned before.",
        "Qiu 2021, after Meta Pseudo Labels",
        "frodo:run_extension",
    ),
    "metagrad-chain": Experiment(
        "A learned γ for each state cuts noise.", METAGRAD, "metagrad:run_chain"
    ),
    "metagrad-control": Experiment(
        "Learned γ and λ on CartPole, from a poor start.", METAGRAD, "metagrad:run_control"
    ),
    "krazy-world": Experiment(
        "Four ways to adapt, in Krazy World.", f"{ADAPTATION}, figure 4", "adaptation:run_krazy", 3
    ),
    "mazes": Experiment(
        "Four ways to adapt, in mazes.", f"{ADAPTATION}, figure 5", "adaptation:run_mazes", 3
    ),
    "adaptation-gap": Experiment(
        "Krazy World before adapting and after.", f"{ADAPTATION}, figure 6", "adaptation:run_gap", 3
    ),
    "exploration": Experiment(
        "What is explored before adapting.",
        f"{ADAPTATION}, figure 7",
        "adaptation:run_exploration",
        3,
    ),
    "rl2-bandits": Experiment(
        "RL² against classic strategies on bandits.", f"{TABLES}, table 1", "tables:run_bandits", 3
    ),
    "rl2-mdps": Experiment(
        "RL² against classic strategies on MDPs.", f"{TABLES}, table 2", "tables:run_mdps", 3
    ),
    "disco-catch": Experiment(
        "Disco103 on Catch, as released.", f"{DISCO}, released notebook", "disco:run_catch", 5
    ),
    "disco-meta-train": Experiment(
        "A rule from nothing, as released.",
        f"{DISCO}, released notebook",
        "disco:run_meta_train",
        3,
    ),
    "disco-window": Experiment(
        "What a longer window buys, and one that slides.",
        DISCO,
        "disco_discovery:run_window",
        3,
        cut="1,600 agent updates where --full has 8,000, for 5 times as long.",
    ),
    "disco-ablations": Experiment(
        "DiscoRL without its parts.",
        f"{DISCO}, figure 3",
        "disco_discovery:run_ablations",
        3,
        cut="200 meta-steps where --full has 800, for 4 times as long; the paper has Atari.",
    ),
    "disco-scaling": Experiment(
        "More environments to discover a rule in.",
        f"{DISCO}, figure 3",
        "disco_discovery:run_scaling",
        3,
        cut="150 meta-steps where --full has 800, for 5 times as long; the paper has Atari.",
    ),
    "disco-predictions": Experiment(
        "What y and z of Disco103 tell.", f"{DISCO}, figure 4", "disco:run_predictions", 3
    ),
}

__all__ = [
    "EXPERIMENTS",
    "SHORT_VERSION",
    "Experiment",
    "Options",
    "Reproduction",
    "Verdict",
    "write",
]
