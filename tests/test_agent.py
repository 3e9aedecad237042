"""The agent's network: built from the heads asked for, on any tree of observations."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.core.agent import Agent, Heads, NetworkConfig
from etude.core.observations import Symbols
from etude.errors import UserError
from etude.runs.storage import named_leaves
from tests.conftest import random_like

HEADS = Heads(state={"pi": 3, "y": 5}, action={"q": 4, "z": 2})
CONFIG = NetworkConfig(torso=(8, 6), model=5, head=7)
ACTIONS = 3


def fresh_agent(observation, heads=HEADS, config=CONFIG, key=jax.random.key(0)) -> Agent:
    """An agent as it starts."""
    return Agent(observation, ACTIONS, heads, config, key=key)


def make_agent(observation, heads=HEADS, config=CONFIG) -> Agent:
    """An agent of that form with random parameters, biases too."""
    return random_like(lambda: fresh_agent(observation, heads, config))


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape)


@pytest.fixture
def agent() -> Agent:
    """An agent that sees vectors of four."""
    return make_agent(jnp.zeros(4))


def test_heads_are_exactly_those_asked_for(agent):
    """Names and sizes, with any batch axes; the action axis comes first."""
    embedding = jax.eval_shape(agent.torso, jnp.zeros((7, 2, 4)))
    assert embedding.shape == (7, 2, 6)
    action = jnp.zeros((7, 2), jnp.int32)
    outputs = {
        "state": jax.eval_shape(agent.predict, embedding),
        "one": jax.eval_shape(
            lambda e, a: agent.predict_action(agent.consider(e), a), embedding, action
        ),
        "all": jax.eval_shape(lambda e: agent.predict_actions(agent.consider(e)), embedding),
    }
    shapes = {kind: {k: x.shape for k, x in heads.items()} for kind, heads in outputs.items()}
    assert shapes == {
        "state": {"pi": (7, 2, 3), "y": (7, 2, 5)},
        "one": {"q": (7, 2, 4), "z": (7, 2, 2)},
        "all": {"q": (ACTIONS, 7, 2, 4), "z": (ACTIONS, 7, 2, 2)},
    }


def test_without_action_heads_there_is_no_model():
    agent = make_agent(jnp.zeros(4), Heads(state={"pi": 3}))
    assert agent.model is None
    assert not [name for name in named_leaves(agent) if name.startswith("model")]
    assert set(agent.predict(jnp.zeros(6))) == {"pi"}


def test_the_policy_is_the_pi_head(agent):
    observation = jnp.asarray(random(2, 4), jnp.float32)
    expected = agent.predict(agent.torso(observation))["pi"]
    np.testing.assert_array_equal(agent.act(None, observation)[1], expected)


@pytest.mark.usefixtures("x64")
def test_predict_action_is_the_row_of_predict_actions():
    agent = make_agent(jnp.zeros(4))
    embedding = random(2, 5, 6)
    action = np.array([[0, 1, 2, 1, 0], [2, 2, 1, 0, 1]])
    rows = jax.jit(lambda agent, e: agent.predict_actions(agent.consider(e)))(agent, embedding)
    taken = jax.jit(lambda agent, e, a: agent.predict_action(agent.consider(e), a))(
        agent, embedding, action
    )
    assert taken.keys() == rows.keys()
    for name, value in taken.items():
        index = action, np.arange(2)[:, None], np.arange(5)
        np.testing.assert_allclose(value, np.asarray(rows[name])[index], rtol=1e-10)
        assert np.ptp(rows[name], axis=0).min() > 0.0, "the actions must differ for this to tell"


@pytest.mark.usefixtures("x64")
def test_the_action_model_against_numpy():
    """cell = root(embedding), hidden = tanh(cell); one step of the LSTM; a two-layer head."""
    agent = make_agent(jnp.zeros(4))
    model, embedding = jax.tree.map(np.asarray, agent.model), random(2, 6)
    cell = embedding @ model.root.w + model.root.b
    joined = np.concatenate([np.eye(ACTIONS)[[2, 0]], np.tanh(cell)], axis=1)
    i, g, f, o = np.split(joined @ model.lstm.w + model.lstm.b, 4, axis=1)
    sigmoid = lambda x: 1.0 / (1.0 + np.exp(-x))  # noqa: E731
    hidden = sigmoid(o) * np.tanh(sigmoid(f + 1.0) * cell + sigmoid(i) * np.tanh(g))
    first, last = model.heads["q"].layers
    expected = np.maximum(hidden @ first.w + first.b, 0.0) @ last.w + last.b
    actual = jax.jit(lambda agent, e, a: agent.predict_action(agent.consider(e), a))(
        agent, embedding, np.array([2, 0])
    )["q"]
    np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-12)


def test_predict_actions_summarises_each_action(agent):
    embedding = random(2, 6).astype(np.float32)

    def mean_q(predictions):
        return jnp.mean(predictions["q"], axis=-1)

    summary, rows = jax.jit(
        lambda agent, e: (
            agent.predict_actions(agent.consider(e), mean_q),
            agent.predict_actions(agent.consider(e))["q"],
        )
    )(agent, embedding)
    np.testing.assert_allclose(summary, np.mean(rows, axis=-1), atol=1e-6)


def test_the_first_policy_is_close_to_uniform():
    config = NetworkConfig(torso=(32, 32))
    agent = fresh_agent(jnp.zeros(4), Heads(state={"pi": ACTIONS}), config)
    logits = jax.jit(Agent.act)(agent, None, random(50, 4).astype(np.float32))[1]
    probability = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    assert np.abs(probability - 1.0 / ACTIONS).max() < 0.05
    assert np.ptp(probability) > 0.0


# --- Observations --------------------------------------------------------------------------------


def test_a_peaked_value_is_certain_to_be_near_zero_at_first():
    """Logits by hand for five bins; the other heads, and all weights, are as without a peak."""
    heads = Heads(state={"value": 5, "pi": 3}, action={"q": 5, "z": 5}, bins=("q", "value"))
    plain, peaked = (
        fresh_agent(jnp.zeros(4), heads, dataclasses.replace(CONFIG, value_peak=peak))
        for peak in (0.0, 0.5)
    )
    falling = [-1.0, -0.5, 0.0, -0.5, -1.0]
    assert peaked.head["value"].b.tolist() == falling
    assert peaked.model.heads["q"].layers[-1].b.tolist() == falling
    flat = eqx.tree_at(
        lambda a: (a.head["value"].b, a.model.heads["q"].layers[-1].b),
        peaked,
        replace_fn=jnp.zeros_like,
    )
    assert eqx.tree_equal(flat, plain)
    wide = Heads(state={"value": 101}, bins=("value",))
    far = fresh_agent(jnp.zeros(4), wide, dataclasses.replace(CONFIG, value_peak=1.0))
    assert far.head["value"].b.min() == -20.0  # so that no bin is out of reach


def test_observation_leaves_are_flattened_and_joined():
    """A dictionary of a scalar, a vector and a matrix is the same as their entries in a row."""
    tree = {"a": random(5, 2), "b": random(5, 2, 3), "c": random(5, 2, 2, 4)}
    tree = {name: x.astype(np.float32) for name, x in tree.items()}
    one = {"a": jnp.zeros(()), "b": jnp.zeros(3), "c": jnp.zeros((2, 4))}
    joined = np.concatenate([tree["a"][..., None], tree["b"], tree["c"].reshape(5, 2, 8)], axis=-1)
    of_tree, of_row = make_agent(one), make_agent(jnp.zeros(12))
    policy = jax.jit(lambda agent, seen: agent.act(None, seen)[1])
    np.testing.assert_allclose(policy(of_tree, tree), policy(of_row, joined), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_])
def test_integer_and_boolean_observations(agent, dtype):
    """They are numbers like any other: a 1 is a 1.0, and gradients reach the first layer."""
    observation = jnp.asarray([[0, 1, 1, 0], [1, 0, 0, 0]], dtype)
    assert make_agent(jax.ShapeDtypeStruct((4,), dtype)).torso.mlp.layers[0].w.shape == (4, 8)
    logits = agent.act(None, observation)[1]
    assert logits.dtype == jnp.float32
    np.testing.assert_array_equal(logits, agent.act(None, observation.astype(jnp.float32))[1])


def test_every_weight_is_drawn_from_the_key():
    """`ShapeDtypeStruct`s stand for the observation. Weights differ by key and by place."""
    heads = Heads(state={"pi": 3, "y": 3}, action={"q": 3, "z": 3})
    config = NetworkConfig(torso=(4, 4), model=4, head=4)
    observation = jax.ShapeDtypeStruct((4,), jnp.float32)
    build = jax.jit(lambda key: fresh_agent(observation, heads, config, key))
    one, same, other = (named_leaves(build(jax.random.key(seed))) for seed in (0, 0, 1))
    weights = {name: x for name, x in one.items() if name.endswith("w")}
    for name, value in weights.items():
        np.testing.assert_array_equal(value, same[name])
        assert not np.array_equal(value, other[name]), name
    firsts = [float(np.ravel(x)[0] / np.abs(x).max()) for x in weights.values()]
    assert len(set(firsts)) == len(weights), "two layers share a key"


# --- Images --------------------------------------------------------------------------------------

IMAGE_CONFIG = NetworkConfig(torso=(6,), conv=(2, 3), model=2, head=2)


@pytest.mark.parametrize("shape", [(6, 5, 2), (6, 5)])
def test_conv_torso_shapes(shape):
    """Two stages: 6 × 5 → 3 × 3 → 2 × 2, of 3 channels."""
    agent = make_agent(jnp.zeros(shape), config=IMAGE_CONFIG)
    assert agent.torso.mlp.layers[0].w.shape == (2 * 2 * 3, 6)
    for batch in ((), (4,), (4, 2)):
        assert jax.eval_shape(agent.torso, jnp.zeros((*batch, *shape))).shape == (*batch, 6)


def test_every_leaf_of_the_conv_torso_gets_gradient():
    agent = make_agent(jnp.zeros((6, 5, 2)), config=IMAGE_CONFIG)
    image = jnp.asarray(random(4, 6, 5, 2), jnp.float32)
    gradient = jax.jit(jax.grad(lambda torso: jnp.sum(torso(image) ** 2)))(agent.torso)
    dead = [name for name, x in named_leaves(gradient).items() if not np.any(x)]
    assert not dead


def test_conv_torso_needs_an_image():
    with pytest.raises(UserError, match="convolutional torso needs one observation"):
        make_agent({"a": jnp.zeros(4), "b": jnp.zeros(())}, config=IMAGE_CONFIG)


def test_the_classic_convolution_needs_room():
    config = NetworkConfig(torso=(6,), conv_kind="classic")
    assert make_agent(jnp.zeros((36, 36, 2)), config=config).torso.conv.outputs == 64
    with pytest.raises(UserError, match="at least 36 × 36 pixels, not 35 × 40"):
        make_agent(jnp.zeros((35, 40, 2)), config=config)


# --- Observations by kind ------------------------------------------------------------------------


def features(observation, seen, **settings) -> np.ndarray:
    """What the torso's MLP reads."""
    torso = make_agent(observation, config=NetworkConfig(torso=(1,), **settings)).torso
    inputs = torso.mlp.layers[0].w.shape[0]
    identity = (jnp.eye(inputs), jnp.zeros(inputs))
    torso = eqx.tree_at(lambda t: (t.mlp.layers[0].w, t.mlp.layers[0].b), torso, identity)
    return np.asarray(jax.jit(lambda torso, seen: torso(seen))(torso, seen))


def test_small_images_of_bytes_are_scaled_and_flattened():
    form = jax.ShapeDtypeStruct((2, 3), jnp.uint8)
    seen = jnp.asarray([[[0, 51, 255], [102, 1, 0]]], jnp.uint8)
    np.testing.assert_allclose(features(form, seen), [[0, 0.2, 1, 0.4, 1 / 255, 0]], rtol=1e-6)


def test_whole_numbers_are_squashed_and_floats_and_flags_are_not():
    """ln 2 = 0.693, ln 1001 = 6.909; floats keep their value."""
    form = {
        "a": jax.ShapeDtypeStruct((3,), jnp.int32),
        "b": jax.ShapeDtypeStruct((2,), jnp.float32),
        "c": jax.ShapeDtypeStruct((), jnp.bool_),
    }
    seen = {
        "a": jnp.array([[0, 1, -1000]]),
        "b": jnp.array([[7.0, -500.0]]),
        "c": jnp.array([True]),
    }
    expected = [[0.0, 0.693147, -6.908755, 7.0, -500.0, 1.0]]
    np.testing.assert_allclose(features(form, seen), expected, rtol=1e-5)


def test_symbols_are_looked_up():
    """Each symbol is one row of the table, next to the vectors of other leaves."""
    form = {"inventory": Symbols((2,), np.int32, 5), "life": jax.ShapeDtypeStruct((), np.float32)}
    config = NetworkConfig(torso=(1,), embedding=3)
    table = np.asarray(make_agent(form, config=config).torso.conv["inventory"].embedding)
    assert table.shape == (5, 3)
    seen = {"inventory": jnp.array([[4, 0], [1, 1]]), "life": jnp.array([0.5, 2.0])}
    expected = [[*table[4], *table[0], 0.5], [*table[1], *table[1], 2.0]]
    np.testing.assert_allclose(features(form, seen, embedding=3), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "form, settings, kind, outputs",
    [
        (jax.ShapeDtypeStruct((32, 32, 3), np.uint8), {}, "ResidualConvNet", 4 * 4 * 32),
        (jax.ShapeDtypeStruct((31, 40, 3), np.uint8), {}, "Numbers", 31 * 40 * 3),
        (jax.ShapeDtypeStruct((40, 40, 3), np.float32), {}, "Numbers", 4800),
        (jax.ShapeDtypeStruct((40, 40), np.float32), dict(conv=(4,)), "ResidualConvNet", 1600),
        (jax.ShapeDtypeStruct((84, 84), np.uint8), dict(conv_kind="classic"), "Classic", 3136),
        (Symbols((21, 79), np.int16, 5976), {}, "SymbolNet", 3 * 10 * 32),
        (Symbols((21, 79), np.int16, 9), dict(conv_kind="classic"), "SymbolNet", 3 * 10 * 32),
        (Symbols((21, 79), np.int16, 9), dict(conv=(4, 4)), "SymbolNet", 6 * 20 * 4),
        (Symbols((7, 7, 3), np.uint8, 11), {}, "SymbolNet", 7 * 7 * 3 * 16),
        (Symbols((7, 7, 3), np.uint8, 11), dict(conv=(5,)), "SymbolNet", 4 * 4 * 5),
    ],
)
def test_leaves_are_encoded_by_kind(form, settings, kind, outputs):
    config = NetworkConfig(torso=(6,), **settings)
    torso = jax.eval_shape(lambda: fresh_agent(form, config=config).torso)
    assert type(torso.conv).__name__.startswith(kind) and torso.conv.outputs == outputs
    seen = jax.ShapeDtypeStruct((5, 2, *form.shape), form.dtype)
    assert jax.eval_shape(lambda torso, x: torso(x), torso, seen).shape == (5, 2, 6)


NETHACK = {
    "glyphs": Symbols((10, 12), np.int16, 30),
    "blstats": jax.ShapeDtypeStruct((5,), np.int32),
    "message": Symbols((6,), np.uint8, 256),
    "picture": jax.ShapeDtypeStruct((36, 36, 1), np.uint8),
}


def test_a_dictionary_of_all_kinds_reaches_every_parameter():
    agent = make_agent(NETHACK, config=NetworkConfig(torso=(6,), conv_kind="classic"))
    rng = np.random.default_rng(0)
    seen = {k: jnp.asarray(rng.integers(0, 30, (8, *x.shape)), x.dtype) for k, x in NETHACK.items()}
    gradient = jax.jit(jax.grad(lambda torso: jnp.sum(torso(seen) ** 2)))(agent.torso)
    dead = [name for name, x in named_leaves(gradient).items() if not np.any(x)]
    assert not dead
    assert "conv.glyphs.conv.stages.0.entry.w" in named_leaves(agent.torso)


def test_the_names_of_a_single_image_are_those_of_saved_agents():
    names = named_leaves(make_agent(jnp.zeros((6, 5)), config=IMAGE_CONFIG))
    assert "torso.conv.stages.1.blocks.0.1.w" in names


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_parameters_and_outputs_follow_the_default_float(dtype):
    """Also where the observations have another type."""
    with jax.enable_x64(dtype == jnp.float64):
        image = jax.ShapeDtypeStruct((6, 5), jnp.uint8)
        agent = jax.eval_shape(lambda: make_agent(image, config=IMAGE_CONFIG))
        outputs = jax.eval_shape(
            lambda agent, x: (
                agent.act(None, x)[1],
                agent.predict_actions(agent.consider(agent.torso(x))),
            ),
            agent,
            image,
        )
    for name, leaf in named_leaves((agent, outputs)).items():
        assert leaf.dtype == dtype, name
