"""What one does with Etude from Python: the same runs, in the same folders, as from the command
line."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Unpack

import jax

from etude import kinds, plugins, rules
from etude.adaptation.config import AdaptConfig
from etude.adaptation.run import AdaptResult, AdaptRun, kept_policies, read_folder
from etude.comparing import run as comparing
from etude.comparing.config import CompareConfig
from etude.envs import Task
from etude.errors import UserError
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.presets import resolve as resolve_discovery
from etude.meta.discovery.run import DiscoverResult, DiscoveryRun
from etude.meta.discovery.saved import read_config
from etude.meta.online_run import training_run
from etude.placing.cluster import ClusterOptions
from etude.placing.devices import using
from etude.placing.pace import Progress
from etude.placing.places import places, working_on
from etude.rules import Rule
from etude.runs import lifecycle
from etude.runs.estimates import forcing
from etude.runs.folder import RunFolder
from etude.runs.loop import LoopOptions
from etude.runs.run import Found, Record, Result, Run, State
from etude.settings import make_config
from etude.training.config import TrainPlan, TrainRequest
from etude.training.planning import plan_named, read_plan
from etude.training.presets import resolve
from etude.training.run import TrainResult, TrainRun
from etude.training.trained import TrainedAgent
from etude.tuning import run as tuning
from etude.tuning.config import TuneConfig

OnRecord = Callable[[Record], None]
"""Called with each record that goes to the curve."""
OnCheckpoint = Callable[[Path], None]
"""Called with the run's folder whenever a checkpoint has been written there."""


def train(
    env: str | Task = "catch",
    rule: str | Rule = "disco103",
    *,
    out: str | None = None,
    trust: bool = False,
    force: bool = False,
    devices: int | str = 1,
    on_record: OnRecord | None = None,
    on_checkpoint: OnCheckpoint | None = None,
    **settings: object,
) -> TrainResult:
    """Trains agents and returns them; `settings` are the fields of `TrainRequest`.

    With `out`, the run is kept in that folder, as by `etude train --out`; only then are there
    checkpoints. An exception in a callback ends the run, which can be resumed from its folder. If
    `rule` is a file that names code which is not Etude's, that is imported only if you `trust` it.
    What would take more memory than there is, or compile for very long, is run only by `force`.
    Several `devices` (a number, or `"all"`) share out the seeds, or a single agent's batch.
    """
    callbacks = _callbacks(out, on_record, on_checkpoint)
    with plugins.trusting(trust), forcing(force), using(devices):
        run = setup(env, rule, **settings)
    return _run(run, out, callbacks)


def setup(env: str | Task = "catch", rule: str | Rule = "disco103", **settings: object) -> TrainRun:
    """The training run that `train` would do."""
    if not isinstance(env, (str, Task)):
        raise UserError("An environment is a name, or what `etude.envs.make` returns.")
    request = make_config(
        TrainRequest,
        "etude.train",
        env=env if isinstance(env, str) else env.name,
        rule=rule if isinstance(rule, str) else rules.spec_of(rule),
        **settings,
    )
    task = None if isinstance(env, str) else env
    if isinstance(rule, str):
        return training_run(plan_named(request).plan, task=task)
    plan = resolve(request, rules.kind_of(rule), rule_is_made=True)
    return training_run(plan, task=task, rule=rule)


def discover(
    envs: str | None = None,
    from_: str | Rule | None = None,
    *,
    out: str | None = None,
    cluster: ClusterOptions | None = None,
    trust: bool = False,
    force: bool = False,
    devices: int | str = 1,
    on_record: OnRecord | None = None,
    on_checkpoint: OnCheckpoint | None = None,
    **settings: object,
) -> DiscoverResult:
    """Discovers a rule and returns it; `settings` are the fields of `DiscoverConfig`.

    Args:
        envs: The environments of the population, with commas between; by default Catch of 5×5, or
            those of the preset.
        from_: The rule to start from, or its name; by default a random one.
        out: Folder to keep the run in, as by `etude discover --out`.
        cluster: The machines that work, if not this one: `etude.ClusterOptions("local")`, or with
            the address of a Ray cluster.
        trust: Whether to import code that the file of a rule names.
        force: Whether to run what would take more memory than there is, or compile for very long.
        devices: How many (or "all") of this process share out the parts of the population.
        on_record: Called with each record.
        on_checkpoint: Called with the folder after each checkpoint.
    """
    callbacks = _callbacks(out, on_record, on_checkpoint)
    named, made = (from_, None) if isinstance(from_, str) else (None, from_)
    asked = {name: x for name, x in dict(envs=envs, from_=named).items() if x is not None}
    config = resolve_discovery(asked | settings, "etude.discover").config
    with plugins.trusting(trust), forcing(force), using(devices):
        run = DiscoveryRun.create(config, made)
    return _run(run.on((cluster or ClusterOptions()).require()), out, callbacks)


def adapt(
    algo: str = "rl2",
    tasks: str = AdaptConfig.tasks,
    *,
    out: str | None = None,
    force: bool = False,
    devices: int | str = 1,
    on_record: OnRecord | None = None,
    on_checkpoint: OnCheckpoint | None = None,
    **settings: object,
) -> AdaptResult:
    """Learns to adapt to tasks, and returns policies; `settings` are the fields of `AdaptConfig`.

    With `out`, the run is kept in that folder, as by `etude adapt --out`. Callbacks, `force` and
    `devices` are as those of `train`.
    """
    callbacks = _callbacks(out, on_record, on_checkpoint)
    config = make_config(AdaptConfig, "etude.adapt", algo=algo, tasks=tasks, **settings)
    with forcing(force), using(devices):
        run = AdaptRun.create(config)
    return _run(run, out, callbacks)


@dataclasses.dataclass(frozen=True)
class Compared:
    """What a comparison has come to."""

    path: str
    summary: Record
    """As in `summary.json` of its folder."""

    @property
    def failed(self) -> dict[str, str]:
        """Why cells failed, by rule and environment in words."""
        return self.summary["failed"]


def compare(
    envs: str = CompareConfig.envs,
    rules: str = CompareConfig.rules,
    *,
    out: str | None = None,
    resume: str | None = None,
    processes: int | None = None,
    cluster: ClusterOptions | None = None,
    trust: bool = False,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    **settings: object,
) -> Compared:
    """Trains agents under every rule in every environment, each pair in a process of its own, and
    compares them; `settings` are the fields of `CompareConfig`.

    Args:
        envs: Environments with commas between, the name of a suite, or a file that lists some.
        rules: Rules with commas between.
        out: Folder of the comparison, as by `etude compare --out`.
        resume: Continue the comparison in this folder, which has its own settings.
        processes: How many run at once; by default one per core.
        cluster: The machines where they run, if not this one.
        trust: Whether to import code that a resumed folder or a file of environments names.
        on_progress: Told every second how far all of it is.
    """
    if resume is not None and settings:
        raise UserError("A comparison keeps its own settings when it goes on.")
    with working_on(cluster or ClusterOptions(), processes), plugins.trusting(trust):
        at = places()
        if resume is not None:
            comparison, folder = comparing.reopen(resume)
        else:
            config = make_config(CompareConfig, "etude.compare", envs=envs, rules=rules, **settings)
            comparison = comparing.Comparison.planned(config)
            folder = comparing.start(comparison, out)
        return Compared(str(folder.path), comparing.execute(comparison, folder, at, on_progress))


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What a search for settings has come to."""

    path: str
    summary: Record
    """As in `summary.json` of its folder."""

    @property
    def preset(self) -> str:
        """The file with the best settings: `etude.train(preset=…)`."""
        return str(Path(self.path) / tuning.BEST)


def tune(
    env: str = TuneConfig.env,
    rule: str = TuneConfig.rule,
    *,
    out: str | None = None,
    processes: int | None = None,
    cluster: ClusterOptions | None = None,
    trust: bool = False,
    on_progress: Callable[[Record], None] = lambda record: None,
    **settings: object,
) -> Tuned:
    """Searches for settings of training and of a rule; `settings` are the fields of `TuneConfig`.

    Args:
        env: An environment, several with commas between, the name of a suite, or a file.
        rule: The rule by its name; settings that follow are kept as they are.
        out: Folder of the search, as by `etude tune --out`.
        processes: How many trainings run at once; by default one per core.
        cluster: The machines where they run, if not this one.
        trust: Whether to import code that the files of environments or of a rule name.
        on_progress: Told how many candidates are done (`updates`), in how many `steps`.
    """
    tuning.require_optuna()
    with working_on(cluster or ClusterOptions(), processes), plugins.trusting(trust):
        at = places()
        config = make_config(TuneConfig, "etude.tune", env=env, rule=rule, **settings)
        folder = tuning.start(config, out)
        return Tuned(str(folder.path), tuning.execute(config, folder, at, on_progress))


def resume(
    path: str,
    end: int | None = None,
    *,
    cluster: ClusterOptions | None = None,
    trust: bool = False,
    force: bool = False,
    devices: int | str = 1,
    **options: Unpack[LoopOptions],
) -> Result:
    """Continues the run in a folder, and returns what `train`, `discover` or `adapt` would.

    Args:
        path: The run folder.
        end: A later end: the number of steps (of `discover`, meta-steps).
        cluster: The machines that work, if it is a run of `discover` and not this one works.
        trust: Whether to import code that the folder names: an environment or a rule that is not
            Etude's.
        force: Whether to run what would take more memory than there is, or compile for very long.
        devices: How many share out the run, whatever the number was before.
        options: Of the loop, `on_record` and `on_checkpoint` among them.
    """
    with forcing(force), using(devices):
        run, folder = reopen(path, end, trust=trust)
    if cluster is not None:
        if not isinstance(run, DiscoveryRun):
            raise UserError(f"{path} is not a run of discovery, which is what a cluster works on.")
        run = run.on(cluster.require())
    return lifecycle.execute(run, folder, **options)


def reopen(path: str, end: int | None = None, *, trust: bool = False) -> tuple[Run, RunFolder]:
    """The run in a folder, ready to go on to its own end or to a later one."""
    with plugins.trusting(trust):
        folder = kinds.open_folder(path)
        return kinds.class_of(folder).reopened(folder, end), folder


def _callbacks(
    out: str | None, on_record: OnRecord | None, on_checkpoint: OnCheckpoint | None
) -> LoopOptions:
    """Those that are given."""
    if on_checkpoint is not None and out is None:
        raise UserError("on_checkpoint needs out: without a folder there are no checkpoints.")
    options = LoopOptions()
    if on_record is not None:
        options["on_record"] = on_record
    if on_checkpoint is not None:
        options["on_checkpoint"] = on_checkpoint
    return options


def _run(run: Run[State, Found], out: str | None, options: LoopOptions) -> Found:
    folder = None if out is None else lifecycle.start(run, out)
    return lifecycle.execute(run, folder, **options)


@dataclasses.dataclass(frozen=True)
class Loaded:
    """What a run folder holds, as of its last checkpoint."""

    path: str
    config: TrainPlan | DiscoverConfig | AdaptConfig
    rule: Rule
    """Of training: the rule that agents were trained under; of discovery: the best so far; of MAML
    and E-MAML: the one that agents adapt by."""
    agents: list[TrainedAgent]
    """One for each seed; none of a run of discovery. Those of `adapt` are as they meet a new task:
    with MAML the start, with RL² an agent for the observations of `trials/NAME`."""
    curve: list[Record]
    summary: Record | None
    """None if the run is not finished."""

    @property
    def agent(self) -> TrainedAgent:
        """The agent of the first seed."""
        if not self.agents:
            raise UserError(f"{self.path} is a run of discovery: it has a rule, but no agent.")
        return self.agents[0]


def load(path: str, *, trust: bool = False) -> Loaded:
    """What a run has come to: `etude.load("runs/NAME").agent` acts, and `.rule` trains others.

    Nothing in the folder changes, and the run may be going on. Code that the folder names, an
    environment or a rule that is not Etude's, is imported only if you `trust` it.
    """
    with plugins.trusting(trust):
        return _load(path)


def _load(path: str) -> Loaded:
    folder = kinds.open_folder(path)
    kind = kinds.class_of(folder)
    if not folder.has_checkpoint:
        raise UserError(f"{path} holds no checkpoint yet.")
    if issubclass(kind, TrainRun):
        config = read_plan(folder)
        run = kind.untraced(config, rule=kind.kept_start(folder))
        agents = run.trained_agents(folder)
    elif issubclass(kind, DiscoveryRun):
        config, agents = read_config(folder), []
    else:
        return _load_adapted(path, folder)
    rule = rules.load_kept(folder, rules.RULE_FILE)
    return Loaded(path, config, rule, agents, folder.metrics(), folder.summary())


def _load_adapted(path: str, folder: RunFolder) -> Loaded:
    run = read_folder(folder)
    policies = [
        jax.tree.map(lambda x, i=i: x[i], kept_policies(run, folder))
        for i in range(run.config.seeds)
    ]
    method = run.method
    agents = [TrainedAgent(method.agent_of(policy), method.rule) for policy in policies]
    return Loaded(path, run.config, method.rule, agents, folder.metrics(), folder.summary())
