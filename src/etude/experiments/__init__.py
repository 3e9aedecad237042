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
