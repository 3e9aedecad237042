"""Golden numbers of the released implementation: how they are found and read."""

import json
import os
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from etude.core.agent import Agent, NetworkConfig
from etude.core.learner import Learner
from etude.core.moments import Moments
from etude.core.nn import LSTMState
from etude.core.optim import AdamState, adam
from etude.core.types import Rollout
from etude.errors import UserError
from etude.meta.discovery.meta_value import MetaValue, MetaValueConfig
from etude.meta.discovery.problem import Lifetime
from etude.rules.disco import weights
from etude.rules.disco.rule import Disco, DiscoState
from etude.runs.storage import from_arrays, named_leaves

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(os.environ.get("ETUDE_PARITY_DIR") or ROOT / "../shared/parity")
os.environ.setdefault("ETUDE_WEIGHTS_DIR", str(ROOT / "../shared/weights"))


def files(pattern: str) -> list:
    """The golden files as test parameters; one that skips, with the reason, if there are none."""
    found = sorted(FOLDER.glob(pattern))
    if not found and "ETUDE_PARITY_DIR" in os.environ:
        raise FileNotFoundError(f"ETUDE_PARITY_DIR names {FOLDER}, which holds no {pattern}")
    if not found:
        skip = pytest.mark.skip(reason=f"no {pattern} in {FOLDER}: set ETUDE_PARITY_DIR")
        return [pytest.param(None, marks=skip)]
    return [pytest.param(path, id=path.stem) for path in found]


def published_rule() -> Disco:
    try:
        return weights.load_disco103()
    except UserError as error:
        pytest.skip(str(error))


def our_name(golden: str) -> str:
    """`torso.0.w` → `torso.mlp.layers.0.w` and so on."""
    name = re.sub(r"^torso\.(\d)", r"torso.mlp.layers.\1", golden)
    return re.sub(r"^model\.([zqp])\.(\d)", r"model.heads.\1.layers.\2", name)


class Golden:
    """One golden file: arrays by dotted name, and trees built from them."""

    def __init__(self, path: Path):
        with np.load(path) as file:
            self.arrays = {name: file[name] for name in file.files}
        self.config = json.loads(str(self.arrays.pop("config")))

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]

    def under(self, prefix: str) -> dict[str, np.ndarray]:
        start = prefix + "."
        return {
            our_name(name[len(start) :]): value
            for name, value in self.arrays.items()
            if name.startswith(start)
        }

    def agent_like(self, rule: Disco, key) -> Agent:
        c = self.config
        network = NetworkConfig(tuple(c["torso"]), (), c["lstm"], c["head_hidden"])
        observation = jnp.zeros(c["obs_dim"])
        return Agent(observation, c["num_actions"], rule.heads(c["num_actions"]), network, key=key)

    def tree(self, like, prefix: str):
        return from_arrays(like, self.under(prefix), prefix)

    @property
    def optimiser(self) -> optax.GradientTransformation:
        return adam(self.config["learning_rate"], self.config.get("max_abs_update", 1.0))

    def optimiser_state(self, optimiser, like, prefix: str) -> tuple:
        count = jnp.asarray(self[f"{prefix}.count"])
        mu, nu = self.tree(like, f"{prefix}.mu"), self.tree(like, f"{prefix}.nu")
        return (AdamState(count, mu, nu), *optimiser.init(like)[1:])

    def learner(self, rule: Disco) -> Learner:
        like = self.agent_like(rule, jax.random.key(0))
        state = self.optimiser_state(self.optimiser, like, "init.opt")
        return Learner(self.tree(like, "init.params"), state, self.rule_state(like, "init.state"))

    def lifetime(self, rule: Disco) -> Lifetime:
        c = self.config["value"]
        config = MetaValueConfig(
            torso=tuple(c["torso"]),
            discount=c["discount"],
            td_lambda=c["td_lambda"],
            learning_rate=c["learning_rate"],
            max_update=c["max_abs_update"],
        )
        observation = jnp.zeros(self.config["obs_dim"])
        like = MetaValue.create(observation, config, key=jax.random.key(0)).network
        value = MetaValue(
            network=self.tree(like, "init.value_params"),
            optimiser_state=self.optimiser_state(config.optimiser, like, "init.value_opt"),
            advantage=self.moments("init.value_state.adv_ema"),
            td=self.moments("init.value_state.td_ema"),
            config=config,
        )
        return Lifetime(self.learner(rule), value)

    @property
    def meta_gradient(self) -> dict[str, np.ndarray]:
        """By our names of the rule's leaves."""
        start = "meta_grad/"
        return {
            weights.our_name(name[len(start) :]): value[0] if value.ndim == 3 else value
            for name, value in self.arrays.items()
            if name.startswith(start)
        }

    def moments(self, prefix: str) -> Moments:
        return Moments(*(jnp.asarray(self[f"{prefix}.{k}"], float) for k in ("m1", "m2", "decay")))

    def rule_state(self, agent_like: Agent, prefix: str) -> DiscoState:
        rnn = LSTMState(
            jnp.asarray(self[f"{prefix}.rnn.hidden"], float),
            jnp.asarray(self[f"{prefix}.rnn.cell"], float),
        )
        return DiscoState(
            rnn,
            self.moments(f"{prefix}.adv_ema"),
            self.moments(f"{prefix}.td_ema"),
            self.tree(agent_like, f"{prefix}.target"),
        )

    def rollout(self, prefix: str) -> Rollout:
        x = self.under(prefix)
        terminal = jnp.asarray(x["terminal"])
        return Rollout(
            observation=jnp.asarray(x["observation"], float),
            action=jnp.asarray(x["action"]),
            reward=jnp.asarray(x["reward"], float),
            terminal=terminal,
            seam=jnp.zeros_like(terminal),
            behaviour_logits=jnp.asarray(x["behaviour_logits"], float),
            mask=jnp.asarray(x["mask"]),
        )


def assert_close(actual, expected, tolerance: float, name: str) -> None:
    """Equal up to `tolerance` relative to the largest magnitude of the expected array."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape, f"{name}: {actual.shape} is not {expected.shape}"
    scale = np.max(np.abs(expected))
    error = np.max(np.abs(actual - expected)) / (scale if scale > 0 else 1.0)
    assert error <= tolerance, f"{name}: off by {error:.2e} of its largest magnitude"


def assert_trees_close(
    actual, expected: dict[str, np.ndarray], tolerance: float, name: str
) -> None:
    leaves = named_leaves(actual)
    assert leaves.keys() == expected.keys()
    for leaf, value in expected.items():
        assert_close(leaves[leaf], value, tolerance, f"{name}.{leaf}")
