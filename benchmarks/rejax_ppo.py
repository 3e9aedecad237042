"""rejax's PPO in an environment of its own: `benchmarks.against_rejax` runs this.

    python benchmarks/rejax_ppo.py score|speed JSON

The settings are those of rejax, with `seeds` and `seed` beside them. Prints one JSON object: the
mean return of each seed's trained agent over `EPISODES` fresh episodes with actions sampled, or
environment steps per second of all seeds together, compilation left out.
"""

import json
import sys
import time

import jax
from rejax import PPO
from rejax.evaluate import evaluate

EPISODES = 256


def main(what: str, settings: dict) -> dict:
    seeds, seed = settings.pop("seeds"), settings.pop("seed")
    settings |= dict(eval_freq=settings["total_timesteps"], skip_initial_evaluation=True)
    algorithm = PPO.create(**settings)
    algorithm = algorithm.replace(eval_callback=lambda *_: ())  # it evaluates while it trains
    keys = jax.random.split(jax.random.key(seed), seeds)
    train = jax.jit(jax.vmap(algorithm.train)).lower(keys).compile()
    started = time.perf_counter()
    states, _ = jax.block_until_ready(train(keys))
    took = time.perf_counter() - started
    if what == "speed":
        steps = algorithm.iteration_size * -(-algorithm.total_timesteps // algorithm.iteration_size)
        return {"steps_per_s": seeds * steps / took}
    return {"returns": [returns_of(algorithm, states, i) for i in range(seeds)], "seconds": took}


def returns_of(algorithm: PPO, states: object, index: int) -> float:
    """The mean return of one of the trained agents."""
    state, params = jax.tree.map(lambda x: x[index], states), algorithm.env_params
    key, longest = jax.random.key(10_000 + index), params.max_steps_in_episode
    act = algorithm.make_act(state)
    _, returns = evaluate(act, key, algorithm.env, params, EPISODES, longest)
    return float(returns.mean())


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))))
