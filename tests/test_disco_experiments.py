"""DiscoRL's own experiments: what they ask for, and that verdicts say what the numbers say. What
they run, `train`, `discover` and `inspect`, is tested where it is."""

from types import SimpleNamespace

import numpy as np
import pytest

from etude.experiments import EXPERIMENTS, Options, disco, disco_discovery
from etude.inspection.inspect import Inspection
from etude.inspection.targets import HEADS
from etude.meta.discovery.presets import resolve
from tests.test_experiments import check

QUICK, FULL = Options(True, 2, 0), Options(False, 3, 0, full=True)
USUAL = Options(False, 3, 7)


def scripted(score):
    """A `discover` whose fresh agents do as `score` says of the settings, better by 0.01 for each
    seed; it keeps what it was asked for. What makes no sense is refused as ever."""
    asked = []

    def discover(**settings):
        config = resolve(settings).config
        asked.append(config)
        mean = score(config) + 0.01 * (config.seed % 10)
        names = config.env_names + config.held_out_names
        rewards = np.linspace(-0.15, mean, 20)
        curve = [{"updates": 5 * i, "reward": x} for i, x in enumerate(rewards)]
        returns = {name: {"mean": mean} for name in names}
        start = {name: {"mean": -0.6} for name in names}
        final = {"returns": returns, "start": start}
        return SimpleNamespace(curve=curve, summary={"final_check": final}, config=config)

    return discover, asked


def verdicts_of(name, options, tmp_path):
    result = EXPERIMENTS[name].run(options, lambda line: None)
    check(result, name, tmp_path)
    return {x.claim: x.verdict for x in result.verdicts}


def test_windows_are_compared_at_equal_agent_updates(tmp_path, monkeypatch):
    discover, asked = scripted(lambda c: 0.1 * c.inner_updates)
    monkeypatch.setattr(disco_discovery, "discover", discover)
    found = verdicts_of("disco-window", USUAL, tmp_path)
    assert [found[x] for x in found if "A window of 20" in x] == ["holds"] * 4
    # Overlapping made no difference here, and to the last digit.
    assert [found[x] for x in found if "Sliding" in x] == ["does not hold"] * 2
    new = [c.meta_steps * (c.stride or c.inner_updates) for c in asked]
    assert set(new) == {1600} and {c.seed for c in asked} == {7000, 7001, 7002}
    assert {(c.inner_updates, c.stride) for c in asked} >= {(20, 0), (20, 5), (1, 0)}
    assert all(c.check_every == c.meta_steps for c in asked)


def test_parts_are_left_out_one_by_one(tmp_path, monkeypatch):
    worse = lambda c: 0.2 if "predictions" in c.rule_settings else 0.9  # noqa: E731
    discover, asked = scripted(lambda c: worse(c) if c.meta_value else 1.5)
    monkeypatch.setattr(disco_discovery, "discover", discover)
    found = verdicts_of("disco-ablations", FULL, tmp_path)
    told = {claim.split(" than ")[1].split(" (")[0].split(":")[0]: x for claim, x in found.items()}
    assert told["without y and z"] == "holds" and told["without meta-value"] == "does not hold"
    assert len(found) == 6 and len({(c.rule_settings, c.meta_value) for c in asked}) == 7
    assert {c.meta_steps for c in asked} == {800}


@pytest.mark.parametrize("options", [USUAL, QUICK])
def test_more_environments(options, tmp_path, monkeypatch):
    discover, asked = scripted(lambda c: 0.1 * len(c.env_names))
    monkeypatch.setattr(disco_discovery, "discover", discover)
    found = verdicts_of("disco-scaling", options, tmp_path)
    assert set(found.values()) == {"holds"}
    largest = asked[len(asked) // options.seeds - 1]
    assert len(largest.env_names) == (2 if options.quick else 16)
    assert not set(largest.env_names) & set(largest.held_out_names)


def test_the_released_meta_training(tmp_path, monkeypatch):
    discover, asked = scripted(lambda c: 0.05)
    monkeypatch.setattr(disco, "discover", discover)
    found = verdicts_of("disco-meta-train", USUAL, tmp_path)
    assert set(found.values()) == {"holds"}
    assert {c.preset for c in asked} == {"notebook"} and asked[0].meta_steps == 800
    discover, _ = scripted(lambda c: -0.6)
    monkeypatch.setattr(disco, "discover", discover)
    first, *_ = verdicts_of("disco-meta-train", QUICK, tmp_path).values()
    assert first == "does not hold"


def test_disco103_on_catch(tmp_path, monkeypatch):
    def train(env, rule, *, steps, seeds, seed):
        assert (env, rule) == ("catch", "disco103")
        updates = steps // 56 - 32
        done = np.linspace(updates / 10, updates, 10)
        returns = np.clip(np.arange(10)[:, None] / 8 + 0.001 * np.arange(seeds)[None] - 0.01, -1, 1)
        curve = [
            {"steps": 56 * (32 + x), "return": y.mean(), "returns": list(y)}
            for x, y in zip(done, returns, strict=True)
        ]
        return SimpleNamespace(curve=curve)

    monkeypatch.setattr(disco, "train", train)
    result = disco.run_catch(Options(False, 5, 0), print)
    check(result, "disco-catch", tmp_path)
    assert [x.verdict for x in result.verdicts] == ["holds", "holds"]
    assert result.verdicts[1].figure == 900.0  # the first point from 0.95 on
    assert disco.first_above(np.arange(3.0), np.zeros(3), 0.5, 7.0) == 7.0


def inspection(y: float, value: float, beyond: float) -> Inspection:
    """Three agents."""
    sources = {"policy": 0.1, "value": value, "y": y, "z": 0.0}
    by = {source: x + 0.001 * np.arange(3) * (source == "y") for source, x in sources.items()}
    kinds = [f"large reward within {k}" for k in (1, 2, 4, 8)]
    kinds += [f"entropy in {k}" for k in (1, 2, 4, 8)]
    probes = dict.fromkeys(kinds, by)
    probes["large reward within 4"] = {source: np.full(3, np.nan) for source in by}
    horizon = np.ones((4, 3, 3)) * np.array([1.0, 0.5, beyond, np.nan])[:, None, None]
    horizon = horizon * (1 + 0.01 * np.arange(3)[None, None])
    ones = np.ones((27, 3, 3))
    return Inspection(
        "catch", "disco", probes, horizon, [f"input {i}" for i in range(27)], ones, ones
    )


def test_what_predictions_tell(tmp_path, monkeypatch):
    monkeypatch.setattr(disco, "subject", lambda rule, training: training)
    monkeypatch.setattr(disco, "inspect", lambda *_: inspection(0.8, 0.3, 0.2))
    found = verdicts_of("disco-predictions", USUAL, tmp_path)
    assert len(found) == 5 * 4 + 2  # one of six cannot be probed
    told = {claim[0]: verdict for claim, verdict in found.items() if "tells more" in claim}
    assert told == {"y": "holds", "z": "does not hold"}
    assert [x for claim, x in found.items() if "looks" in claim] == ["holds"] * 2
    assert all(any(head in claim for claim in found) for head in HEADS[1:])
    monkeypatch.setattr(disco, "inspect", lambda *_: inspection(0.8, 0.9, 1e-6))
    found = verdicts_of("disco-predictions", QUICK, tmp_path)
    assert found["ŷ looks 2 steps ahead: its change there is over 1% of that at once"] != "holds"
    claim = "y tells more of entropy in 2 steps than the value: difference of R²"
    assert found[claim] == "does not hold"


def test_brief_settings_make_sense():
    """Those of the short versions, which are not compiled here."""
    resolve(dict(preset="notebook") | disco.BRIEF)
    for settings in disco_discovery.ABLATIONS.values():
        resolve(settings | disco_discovery.BRIEF)
