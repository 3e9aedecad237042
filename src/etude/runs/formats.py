"""What the files of a run folder hold, as far as anything reads it: types that the reader checks.
They may hold more."""

from typing import Any, Literal, NotRequired, TypedDict

ByName = dict[str, float | None]
Line = list[float | None]
"""A number per seed; null where there is none."""


class Progress(TypedDict):
    """The header of a checkpoint."""

    updates: int
    seconds: float
    metrics_bytes: int
    run: NotRequired[str | None]
    """The identity of the run; folders of earlier versions have none."""
    rule: NotRequired[str | None]
    """The digest of the rule that the run works with, if it keeps one."""


class RuleHeader(TypedDict):
    """The header of a rule file."""

    kind: str
    config: dict[str, Any]
    training: NotRequired[Any]
    """Checked as settings of training, in a sentence of their own."""
    run: NotRequired[str | None]
    import_from: NotRequired[str]


# --- Lines of metrics -----------------------------------------------------------------------------


class Record(TypedDict):
    """Of any run."""

    updates: int
    steps: int
    seconds: NotRequired[float]


Curve = TypedDict("Curve", {"return": float | None, "returns": Line})
"""What a learning curve is drawn from."""


class TrainRecord(Record, Curve):
    last_returns: NotRequired[Line]


class OnlineRecord(TrainRecord):
    learned: NotRequired[dict[str, Line]]
    outer_loss: NotRequired[float | None]


class AdaptRecord(Record, Curve):
    returns_before: Line
    test_before: NotRequired[float | None]
    test_after: NotRequired[float | None]


class Score(TypedDict):
    mean: float | None
    low: float | None
    high: float | None


class TaskScore(Score):
    per_seed: NotRequired[Line]


Scores = dict[str, Score]


class CheckScore(Score):
    area: NotRequired[float | None]
    """The mean of the learning curves."""


CheckScores = dict[str, CheckScore]


class FinalCheck(TypedDict):
    """How fresh agents did, by environment."""

    returns: CheckScores
    start: CheckScores
    baseline: CheckScores
    untrained: CheckScores
    gain: NotRequired[CheckScores]
    """Of the rule that was kept, over the one at the start, seed by seed."""


class Check(FinalCheck):
    score: float
    best: float


class DiscoverRecord(Record):
    """docs/reference/discovery-metrics.md explains each."""

    returns: NotRequired[ByName]
    meta_loss: NotRequired[float | None]
    pg_loss: NotRequired[float | None]
    reg_loss: NotRequired[float | None]
    meta_gradient_norm: NotRequired[float | None]
    meta_update_norm: NotRequired[float | None]
    fitness: NotRequired[float | None]
    fitness_difference: NotRequired[float | None]
    entropy: NotRequired[float | None]
    reward: NotRequired[float | None]
    positive_rewards: NotRequired[float | None]
    negative_rewards: NotRequired[float | None]
    value: NotRequired[float | None]
    value_loss: NotRequired[float | None]
    value_gradient_norm: NotRequired[float | None]
    td: NotRequired[float | None]
    td_rms: NotRequired[float | None]
    normalised_td: NotRequired[float | None]
    advantage: NotRequired[float | None]
    advantage_rms: NotRequired[float | None]
    normalised_advantage: NotRequired[float | None]
    importance_weight: NotRequired[float | None]
    agent_loss: NotRequired[float | None]
    agent_pi_loss: NotRequired[float | None]
    agent_y_loss: NotRequired[float | None]
    agent_z_loss: NotRequired[float | None]
    agent_aux_loss: NotRequired[float | None]
    agent_q_loss: NotRequired[float | None]
    agent_entropy: NotRequired[float | None]
    agent_y_entropy: NotRequired[float | None]
    agent_z_entropy: NotRequired[float | None]
    agent_gradient_norm: NotRequired[float | None]
    agent_update_norm: NotRequired[float | None]
    age: NotRequired[float | None]
    resets: NotRequired[int]
    skipped: NotRequired[int]
    check: NotRequired[Check]


RECORDS: dict[str | None, Any] = {
    "train": TrainRecord,
    "online": OnlineRecord,
    "discover": DiscoverRecord,
    "adapt": AdaptRecord,
}
"""By the kind of run."""


# --- Summaries ------------------------------------------------------------------------------------


class Work(TypedDict):
    seconds: float
    steps_per_second: float
    environment_steps: int


class FinalReturn(Score):
    per_seed: Line


class Evaluation(TypedDict):
    """Mean returns of each seed's trained agent."""

    episodes: int
    sampled: list[float]
    greedy: list[float]
    unfinished: int


class TrainSummary(Work):
    final_return: FinalReturn
    seeds: int
    updates: int
    params_sha256: str
    outcomes: NotRequired[dict[str, Line]]
    evaluation: NotRequired[Evaluation]


class DiscoverSummary(Work):
    best_meta_step: int
    final_check: FinalCheck | None


class AdaptSummary(TypedDict):
    seconds: float
    steps_per_second: float
    fresh_tasks: int
    seeds: NotRequired[int]
    before: TaskScore
    after: TaskScore


class Estimate(TypedDict):
    value: float | None
    low: float | None
    high: float | None


class Improvement(Estimate):
    """Of one rule over another: how likely, or by how much."""

    rule: str
    over: str
    verdict: str


class Profile(TypedDict):
    levels: Line
    share_above: dict[str, Line]
    """By rule."""


class Aggregate(TypedDict):
    """Over environments."""

    over: list[str]
    left_out: dict[str, str]
    improvement: list[Improvement]
    iqm: NotRequired[dict[str, Estimate]]
    difference: NotRequired[list[Improvement]]
    """Of interquartile means."""
    against_best: NotRequired[dict[str, str]]
    profile: NotRequired[Profile]


class EstimateLine(TypedDict):
    value: Line
    low: Line
    high: Line


class Efficiency(TypedDict, total=False):
    """Empty if no environment has references."""

    budget: str
    over: list[str]
    at: Line
    by_rule: dict[str, EstimateLine]


class Reference(TypedDict):
    random: float | None
    strong: float | None
    source: str


class CompareCell(TypedDict):
    env: str
    rule: str
    folder: str
    status: Literal["done", "failed"]
    why: NotRequired[str | None]
    scores: NotRequired[dict[str, Line | None]]
    """By measure."""
    environment_steps: NotRequired[int]
    agent_updates: NotRequired[int]
    seconds: NotRequired[float]
    seconds_to_score: NotRequired[dict[str, Line]]
    settings: dict[str, Any]


class CompareSummary(TypedDict):
    environments: list[str]
    rules: list[str]
    equal: str
    seeds: int
    measures: dict[str, str]
    shown: str
    references: dict[str, Reference]
    cells: list[CompareCell]
    failed: dict[str, str]
    """Why, by rule and environment in words."""
    aggregate: dict[str, Aggregate]
    """By measure."""
    efficiency: Efficiency
    seconds: float


class Layer(TypedDict, total=False):
    """Settings."""

    training: dict[str, Any]
    rule: dict[str, Any]


class Contender(TypedDict):
    name: str
    score: float | None
    again: float | None
    layer: Layer
    """As in a preset."""


class Trial(TypedDict):
    trial: int
    state: str
    score: float | None
    settings: dict[str, Any]
    why: str | None


class Ended(TypedDict):
    """How many trials, by how they ended."""

    complete: int
    pruned: int
    fail: int


class TuneSummary(TypedDict):
    chosen: str
    """The name of a contender."""
    score: float | None
    defaults: float | None
    contenders: list[Contender]
    importances: dict[str, float]
    trials: Ended
    each_trial: list[Trial]
    seconds: float
    environment_steps: int


SUMMARIES: dict[str | None, Any] = {
    "train": TrainSummary,
    "online": TrainSummary,
    "discover": DiscoverSummary,
    "adapt": AdaptSummary,
    "compare": CompareSummary,
    "tune": TuneSummary,
}


class Verdict(TypedDict):
    claim: str
    figure: float | None
    low: float | None
    high: float | None
    verdict: Literal["holds", "does not hold", "cannot be told"]


class PanelLine(TypedDict):
    x: Line
    by_seed: list[Line]


class Panel(TypedDict):
    """One plot of a reproduction."""

    title: str
    x_label: NotRequired[str]
    y_label: NotRequired[str]
    lines: dict[str, PanelLine]
    levels: ByName
    bars: dict[str, Line]


class Made(TypedDict):
    """What made a folder."""

    command: str | None
    at: str
    versions: dict[str, str]
    machine: dict[str, str | int | None]


class ReproductionSummary(TypedDict):
    """Of a folder that has no settings but these."""

    experiment: str
    quick: bool
    seeds: int
    seed: int
    notes: list[str]
    verdicts: list[Verdict]
    panels: list[Panel]
    made: NotRequired[Made]


def form_of(value: object) -> object:
    """The names and numbers of parts in a value, which must be the same from record to record for
    there to be a curve."""
    if isinstance(value, list):
        return len(value)
    if isinstance(value, dict):
        return {name: form_of(part) for name, part in value.items()}
    return None
