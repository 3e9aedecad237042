"""Measures how the uniform policy does: `python -m etude.comparing.references [ENV…]`.

Writes the mean over 10,000 episodes into `references.json`, for the environments that are named or
all of the suites that run in JAX; the other scores there are stated, with their source.
"""

import functools
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

from etude import envs
from etude.comparing.suites import REFERENCES, SUITES
from etude.core.players import Policy
from etude.envs import JaxTask
from etude.runs.arrays import write_atomically
from etude.runs.reading import JSON, read_json
from etude.training.evaluation import episode_returns

EPISODES, AT_ONCE = 10_000, 1000


def random_score(task: JaxTask, episodes: int = EPISODES, seed: int = 0) -> tuple[float, float]:
    """The mean return of the uniform policy, and its standard error."""
    player = Policy(lambda x: jnp.zeros((*_batch(task, x), task.num_actions)))
    play = jax.jit(functools.partial(episode_returns, task, player, episodes=AT_ONCE))
    keys = jax.random.split(jax.random.key(seed), -(-episodes // AT_ONCE))
    returns = np.concatenate([np.asarray(play(key)[0], float) for key in keys])[:episodes]
    return float(returns.mean()), float(returns.std(ddof=1) / np.sqrt(len(returns)))


def _batch(task: JaxTask, observation) -> tuple[int, ...]:
    """The axes of parallel environments."""
    seen, form = jax.tree.leaves(observation)[0], jax.tree.leaves(task.observation)[0]
    return seen.shape[: seen.ndim - len(form.shape)]


def main() -> None:
    named = sys.argv[1:] or [*SUITES["small"], *SUITES["minatar"]]
    table = read_json(REFERENCES, form=dict[str, JSON])
    for name in named:
        mean, error = random_score(envs.make_jax(name))
        table[name] = {
            "strong": None,
            "source": "",
            **table.get(name, {}),
            "random": round(mean, 4),
        }
        table[name] |= {"episodes": EPISODES, "standard_error": round(error, 4)}
        print(f"{name}: {mean:.4g} ± {error:.2g}", flush=True)
        text = json.dumps(table, indent=2, ensure_ascii=False) + "\n"
        write_atomically(REFERENCES, lambda file, text=text: file.write(text.encode()))


if __name__ == "__main__":
    main()
