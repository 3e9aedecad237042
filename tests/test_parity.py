"""Three successive agent updates, number by number, against the released implementation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.core.learner import mean_loss, update
from tests import parity

LOGS = {
    "pi_loss": "pi_loss",
    "aux_kl_loss": "aux_loss",
    "q_loss": "q_loss",
    "entropy": "entropy",
    "y_entropy": "y_entropy",
    "z_entropy": "z_entropy",
}


@pytest.fixture(params=["float64", "float32"])
def precision(request):
    """The tolerance in each precision, with JAX set to it."""
    with jax.enable_x64(request.param == "float64"):
        yield 1e-9 if request.param == "float64" else 1e-3


def check_targets(golden: parity.Golden, step: str, targets, tolerance: float) -> None:
    proposed, values = targets.proposed, targets.values
    ours = {
        "pi_hat": proposed.pi,
        "y_hat": proposed.y,
        "z_hat": proposed.z,
        "q_target": values.q_target,
        "q_td": values.q_td,
        "adv": values.advantage,
        "normalized_adv": values.normalised_advantage,
        "qv_adv": values.qv_advantage,
        "normalized_qv_adv": values.normalised_qv_advantage,
    }
    expected = golden.under(f"{step}.rule_out")
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        parity.assert_close(ours[name], value, tolerance, f"{step}.{name}")


def check_state(golden: parity.Golden, step: str, state, tolerance: float) -> None:
    ours = {"rnn": state.rnn, "adv_ema": state.advantage, "td_ema": state.td}
    for name, value in ours.items():
        parity.assert_trees_close(
            value, golden.under(f"{step}.state.{name}"), tolerance, f"{step}.{name}"
        )


@pytest.mark.parametrize("path", parity.files("learner_*.npz"))
def test_three_updates(path, precision):
    golden = parity.Golden(path)
    rule = parity.published_rule()
    optimiser, learner = golden.optimiser, golden.learner(rule)
    step = jax.jit(lambda learner, rollout: update(rule, optimiser, learner, rollout))
    make_targets = jax.jit(type(rule).targets)
    gradient = jax.jit(jax.grad(mean_loss, has_aux=True))

    for i in range(3):
        name, rollout = f"step{i}", golden.rollout(f"step{i}.rollout")
        if f"{name}.rule_out.pi_hat" in golden.arrays:
            targets, _ = make_targets(rule, learner.agent, learner.rule_state, rollout)
            check_targets(golden, name, targets, precision)
            grads, _ = gradient(learner.agent, rule, targets, rollout)
            parity.assert_trees_close(grads, golden.under(f"{name}.grads"), precision, name)
        if f"{name}.agent_out.y" in golden.arrays:
            check_agent(golden, name, learner.agent, rollout, precision)
        learner, metrics = step(learner, rollout)
        parity.assert_close(metrics["loss"], golden[f"{name}.loss"], precision, f"{name}.loss")
        for theirs, ours in LOGS.items():
            parity.assert_close(metrics[ours], golden[f"{name}.log.{theirs}"], precision, theirs)
        check_state(golden, name, learner.rule_state, precision)

    parity.assert_trees_close(learner.agent, golden.under("step2.params"), precision, "params")
    parity.assert_trees_close(
        learner.rule_state.target, golden.under("step2.state.target"), precision, "target"
    )


def check_agent(golden: parity.Golden, step: str, agent, rollout, tolerance: float) -> None:
    embedding = agent.unroll(rollout)
    ours, start = agent.predict(embedding), agent.consider(embedding)
    by_action = {k: jnp.moveaxis(x, 0, 2) for k, x in agent.predict_actions(start).items()}
    for name, value in golden.under(f"{step}.agent_out").items():
        parity.assert_close({**ours, **by_action}[name], value, tolerance, f"{step}.{name}")
    for name, value in agent.predict_action(
        jax.tree.map(lambda x: x[:-1], start), rollout.action
    ).items():
        taken = np.take_along_axis(
            np.asarray(by_action[name][:-1]), np.asarray(rollout.action)[..., None, None], axis=2
        )
        parity.assert_close(value, taken[:, :, 0], tolerance, f"{step}.{name} of one action")
