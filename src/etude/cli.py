"""The command line: `train`, `discover`, `adapt`, `reproduce`, `envs`, `rules`, `plot`, `play`."""

import dataclasses
import difflib
import importlib.util
import itertools
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import jax
import tyro
from rich.console import Console
from rich.table import Table

from etude import checks, envs, rules
from etude.adaptation.config import AdaptConfig
from etude.config import TrainConfig
from etude.discovery.config import DiscoverConfig
from etude.errors import UserError, reason
from etude.progress import ProgressReport, duration
from etude.rules.weights import cache_dir
from etude.runs import RunFolder
from etude.terminal import (
    list_experiments,
    out,
    print_discovery,
    print_scores,
    print_summary,
    print_verdicts,
    say,
)

Result = TypeVar("Result")

app = tyro.extras.SubcommandApp()


@app.command
def train(
    config: tyro.conf.OmitArgPrefixes[TrainConfig] = TrainConfig(),
    out: str | None = None,
    resume: str | None = None,
    checkpoint_seconds: float = 30.0,
    tensorboard: bool = False,
) -> None:
    """Train agents under a rule, into a run folder.

    Args:
        out: Folder for the run; by default a new one under runs/.
        resume: Continue the run in this folder, to its end or to a later one given by --steps.
        checkpoint_seconds: Time between checkpoints; 0 for one after each line of metrics.
        tensorboard: Also write TensorBoard events into the run folder.
    """
    from etude.trainer import Setup, new_folder, open_folder

    _check_run_options(checkpoint_seconds, tensorboard)
    if resume is None:
        setup = Setup.create(config)
        folder = new_folder(setup, out)
    else:
        _refuse_other_flags("--steps")
        setup, folder = open_folder(resume, config.steps)
    with folder.locked():
        _train(setup, folder, checkpoint_seconds, tensorboard)


def _train(setup: Any, folder: RunFolder, checkpoint_seconds: float, tensorboard: bool) -> None:
    from etude.plots import has_curve, label_of, plot_curves, plot_learned
    from etude.trainer import run

    config = setup.config
    say(
        f"Training {config.rule} on {config.env}: {config.seeds} seed(s), "
        f"{config.num_envs} environments, {config.updates:,} updates → {folder.path}"
    )
    if getattr(setup.task.params, "max_steps_in_episode", None) == 1:
        say(
            "Note: every episode is cut after 1 step, gymnax's default; if that is not meant, give "
            "the environment `default_params` with another max_steps_in_episode."
        )
    total = config.steps_after(config.updates)

    def describe(record: dict[str, Any]) -> str:
        return f"{record['steps']:,} of {total:,} steps · return {record['return']:.3g}"

    progress = ProgressReport(out, "Training", config.updates, describe)
    with _watched(progress, folder, checkpoint_seconds, tensorboard) as options:
        result = run(setup, folder, **options)
    if result.summary["updates"] < config.updates:
        _stopped("train", folder)
    records = folder.metrics()
    if has_curve(records):
        plot_curves([(label_of(folder), records)], folder.path / "curve.png")
    if config.learn_rule and (watched := setup.rule.watched):
        plot_learned(records, watched, folder.path / "learned.png")
    print_summary(result.summary, folder)


@contextmanager
def _watched(
    progress: ProgressReport, folder: RunFolder, checkpoint_seconds: float, tensorboard: bool
) -> Iterator[dict[str, Any]]:
    """What every run in a terminal has: progress, Ctrl-C, TensorBoard. As options of the loop."""
    with progress, _stop_on_interrupt() as stop, _tensorboard(folder, tensorboard) as write:
        yield dict(
            report=progress,
            log=write,
            should_stop=lambda: stop["asked"],
            checkpoint_seconds=checkpoint_seconds,
        )


def _stopped(command: str, folder: RunFolder) -> NoReturn:
    say(f"Stopped and saved. Go on with: etude {command} --resume {folder.path}")
    sys.exit(130)


def _check_run_options(checkpoint_seconds: float, tensorboard: bool) -> None:
    if not checkpoint_seconds >= 0:
        raise UserError(f"--checkpoint-seconds must be 0 or more, not {checkpoint_seconds}.")
    if tensorboard and importlib.util.find_spec("tensorboardX") is None:
        raise UserError("--tensorboard needs the package tensorboardX: pip install tensorboardX.")


def _refuse_other_flags(length: str, *more: str) -> None:
    """With --resume, even a flag that repeats a default would say something about the run."""
    allowed = {"--resume", length, "--checkpoint-seconds", "--tensorboard", "--no-tensorboard"}
    flags = (x.partition("=")[0].replace("_", "-") for x in sys.argv if x.startswith("--"))
    if other := [x for x in flags if x not in allowed | set(more)]:
        raise UserError(
            f"A run keeps its own settings: only {length} can change here, not {other[0]}."
        )


@contextmanager
def _stop_on_interrupt() -> Iterator[dict[str, bool]]:
    """The first Ctrl-C asks the run to save and stop; the second stops it where it is."""
    asked = {"asked": False}

    def ask(*_: object) -> None:
        if asked["asked"]:
            raise KeyboardInterrupt
        asked["asked"] = True
        say("\nFinishing this piece of work, then saving. Ctrl-C again to stop at once.")

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _tensorboard(folder: RunFolder, wanted: bool) -> Iterator[Any]:
    if not wanted:
        yield lambda record: None
        return
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(folder.path / "tensorboard")) as writer:

        def write(record: dict[str, Any]) -> None:
            for name, value in _flat(record):
                writer.add_scalar(name, value, record["steps"])

        yield write


def _flat(record: dict[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    """All numbers of a record by name; those within others have both names."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}/")
        elif isinstance(value, (int, float)):
            yield f"{before}{name}", value


@app.command
def discover(
    config: tyro.conf.OmitArgPrefixes[DiscoverConfig] = DiscoverConfig(),
    out: str | None = None,
    resume: str | None = None,
    checkpoint_seconds: float = 60.0,
    tensorboard: bool = False,
) -> None:
    """Discover a rule: learn it by gradient descent through the learning of a population of agents.

    Args:
        out: Folder for the run; by default a new one under runs/. Its rule: etude train --rule DIR.
        resume: Continue the run in this folder, to its end or to a later one given by --meta-steps.
        checkpoint_seconds: Time between checkpoints; 0 for one after each line of metrics.
        tensorboard: Also write TensorBoard events into the run folder.
    """
    from etude.discovery.trainer import DiscoveryRun, new_folder, open_folder

    _check_run_options(checkpoint_seconds, tensorboard)
    if resume is None:
        discovery = DiscoveryRun.create(config)
        folder = new_folder(discovery, out)
    else:
        _refuse_other_flags("--meta-steps")
        discovery, folder = open_folder(resume, config.meta_steps)
    with folder.locked():
        _discover(discovery, folder, checkpoint_seconds, tensorboard)


def _discover(
    discovery: Any, folder: RunFolder, checkpoint_seconds: float, tensorboard: bool
) -> None:
    from etude.discovery.report import describe
    from etude.discovery.trainer import run

    config = discovery.config
    say(
        f"Discovering a rule on {', '.join(config.env_names)}: {config.agents} agents, "
        f"{config.inner_updates} inner updates, {config.total:,} meta-steps → {folder.path}"
    )
    progress = ProgressReport(
        out, "Discovering", config.total, lambda record: describe(record, config.total)
    )
    with _watched(progress, folder, checkpoint_seconds, tensorboard) as options:
        summary = run(discovery, folder, **options)
    if summary["meta_steps"] < config.total:
        _stopped("discover", folder)
    print_discovery(summary, folder)


@app.command
def adapt(
    config: tyro.conf.OmitArgPrefixes[AdaptConfig] = AdaptConfig(),
    out: str | None = None,
    resume: str | None = None,
    test: str | None = None,
    checkpoint_seconds: float = 30.0,
    tensorboard: bool = False,
) -> None:
    """Learn to adapt: meta-train a policy over tasks, so that it finds its way in new ones.

    Args:
        out: Folder for the run; by default a new one under runs/.
        resume: Continue the run in this folder, to its end or to a later one given by --steps.
        test: Adapt the policies of the run in this folder to fresh tasks; --test-tasks of them.
        checkpoint_seconds: Time between checkpoints; 0 for one after each line of metrics.
        tensorboard: Also write TensorBoard events into the run folder.
    """
    from etude.adaptation.trainer import AdaptRun, new_folder, open_folder

    _check_run_options(checkpoint_seconds, tensorboard)
    if test is not None:
        if resume is not None:
            raise UserError("--test only reads a run: it does not go with --resume.")
        _refuse_other_flags("--test-tasks", "--test", "--seed")
        _test_adaptation(test, config.test_tasks, config.seed)
        return
    if resume is None:
        work = AdaptRun.create(config)
        folder = new_folder(work, out)
    else:
        _refuse_other_flags("--steps")
        work, folder = open_folder(resume, config.steps)
    with folder.locked():
        _adapt(work, folder, checkpoint_seconds, tensorboard)


def _adapt(work: Any, folder: RunFolder, checkpoint_seconds: float, tensorboard: bool) -> None:
    from etude.adaptation.trainer import plot, run

    config = work.config
    say(
        f"Learning to adapt by {config.algo} on {config.tasks}: {config.seeds} seed(s), "
        f"{work.updates:,} updates of {config.batch} tasks → {folder.path}"
    )
    total = work.updates * work.method.steps_per_update

    def describe(record: dict[str, Any]) -> str:
        return (
            f"{record['steps']:,} of {total:,} steps · return on test tasks "
            f"{record['test_before']:.3g} → {record['test_after']:.3g}"
        )

    progress = ProgressReport(out, "Training", work.updates, describe)
    with _watched(progress, folder, checkpoint_seconds, tensorboard) as options:
        summary = run(work, folder, **options)
    if summary["updates"] < work.updates:
        _stopped("adapt", folder)
    plot(folder.metrics(), folder.path / "curve.png")
    print_scores(summary)
    say(f"{duration(summary['seconds'])}, {summary['steps_per_second']:,.0f} steps/s.")
    say(f"Adapt it to fresh tasks with: etude adapt --test {folder.path}")


def _test_adaptation(path: str, number: int, seed: int) -> None:
    from etude.adaptation.trainer import judged, kept_policies, open_folder

    work, folder = open_folder(path)
    if seed == 0:
        seed = 2**32 - 1  # the run itself was judged by number 0
    print_scores(judged(work, kept_policies(work, folder), number, seed))


@app.command
def reproduce(
    name: tyro.conf.Positional[str] = "",
    quick: bool = False,
    seeds: int | None = None,
    seed: int = 0,
    out: str | None = None,
    list_: Annotated[bool, tyro.conf.arg(name="list")] = False,
) -> None:
    """Rerun a published experiment: its figure, and a verdict on each of its claims.

    Args:
        name: The experiment.
        quick: A short version, which shows that all works, not that the claims hold.
        seeds: Agents of each kind; by default 10, or 3 where a training takes long.
        seed: Random seed.
        out: Folder for the result; by default a new one under runs/.
        list_: List the experiments.
    """
    from etude.experiments import EXPERIMENTS, Options, write

    if list_ or not name:
        list_experiments(EXPERIMENTS)
        return
    if name not in EXPERIMENTS:
        close = difflib.get_close_matches(name, EXPERIMENTS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "`etude reproduce --list` lists them."
        raise UserError(f"There is no experiment {name!r}: {hint}")
    seeds = EXPERIMENTS[name].seeds if seeds is None else seeds
    if seeds < 2 or not checks.seed(seed):
        raise UserError(
            f"--seeds must be at least 2, for there to be an interval, and --seed {checks.SEED}."
        )
    folder = RunFolder.create(out, f"reproduce-{name}")
    options = Options(quick, seeds, seed)
    started = time.monotonic()
    result = _interruptible(lambda: EXPERIMENTS[name].run(options, say), folder)
    write(result, name, options, folder)
    print_verdicts(result.verdicts)
    for note in result.notes:
        say(f"Note: {note}")
    took = duration(time.monotonic() - started)
    say(f"{took}, {seeds} seeds. Figure and numbers: {folder.path}")
    if quick:
        say("This was the short version: its verdicts mean nothing.")


def _interruptible(work: Callable[[], Result], folder: RunFolder) -> Result:
    """The result of work that may be one program of minutes. It runs beside the main thread, which
    alone hears of Ctrl-C, and is then left where it is: it has nothing yet to be kept."""
    from etude.experiments.trainings import stop_all

    def quit(*_: object) -> NoReturn:
        say("\nStopped; nothing was kept but long trainings, which go on when this is run again.")
        stop_all()
        with suppress(OSError):
            folder.path.rmdir()
        os._exit(130)

    before = signal.signal(signal.SIGINT, quit)
    try:
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(work)
            while wait([future], timeout=0.2).not_done:
                pass
            return future.result()
    finally:
        signal.signal(signal.SIGINT, before)


@app.command(name="envs")
def list_envs() -> None:
    """List the environments."""
    table = Table(box=None)
    for column in ("environment", "actions", "observation", "about"):
        table.add_column(column)
    for name, about in envs.available().items():
        try:
            task = envs.make(name)
        except UserError:
            continue  # continuous actions, or data that is not on this machine
        shapes = " ".join(
            "×".join(map(str, x.shape)) or "1" for x in jax.tree.leaves(task.observation)
        )
        table.add_row(name, str(task.num_actions), shapes, about)
    out.print(table, highlight=False)
    out.print("\nSettings follow a colon: catch:rows=5,columns=5. Your own: module:Class.")


@app.command(name="rules")
def list_rules() -> None:
    """List the update rules with their settings."""
    for name in rules.PUBLISHED:
        out.print(f"[bold]{name}[/]  The published rule: kind disco with its weights.")
    for name, kind in rules.KINDS.items():
        out.print(f"[bold]{name}[/]  {kind.about}", highlight=False)
        table = Table(box=None, show_header=False, padding=(0, 2))
        docs = tyro_docs(kind.config)
        for field in dataclasses.fields(kind.config):
            table.add_row("", f"{field.name}={field.default}", docs.get(field.name, ""))
        out.print(table, highlight=False)
    out.print("\nSettings follow a colon: actor_critic:discount=0.9,entropy_cost=0.02.")


def tyro_docs(config: type) -> dict[str, str]:
    """The docstrings under a dataclass's fields."""
    import ast
    import inspect
    import textwrap

    (body,) = ast.parse(textwrap.dedent(inspect.getsource(config))).body
    docs = {}
    statements = body.body  # type: ignore[attr-defined]
    for field, after in itertools.pairwise(statements):
        text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and text:
            docs[field.target.id] = " ".join(str(after.value.value).split())  # type: ignore
    return docs


@app.command
def plot(runs: tyro.conf.Positional[tuple[str, ...]], out: str = "curves.png") -> None:
    """Overlay the learning curves of runs.

    Args:
        runs: Run folders.
        out: Where the figure goes.
    """
    from etude.plots import plot_folders

    if not runs:
        raise UserError("Name one or more run folders to plot.")
    plot_folders(runs, Path(out))
    say(f"Wrote {out}")


@app.command
def play(
    run: tyro.conf.Positional[str],
    out: str | None = None,
    episodes: int = 3,
    seed: int = 0,
    agent: int = 0,
    greedy: bool = False,
    show: bool = False,
) -> None:
    """Save an animation of a trained agent, or of one that adapts to a fresh task.

    Args:
        run: Run folder.
        out: Where the GIF goes; by default play.gif in the run folder.
        episodes: How many episodes to play: of one trial (RL²), or one before adapting and the
            others after (MAML).
        seed: Random seed of the episodes.
        agent: Which of the run's seeds to play.
        greedy: Take the likeliest action instead of sampling.
        show: Also show it in the terminal.
    """
    from etude.play import MAX_STEPS, play_run

    if episodes < 1:
        raise UserError(f"--episodes must be at least 1, not {episodes}.")
    if not checks.seed(seed):
        raise UserError(f"--seed must be {checks.SEED}, not {seed}.")
    path, returns = play_run(run, out, episodes, seed, agent, greedy, show)
    total = ", ".join(f"{x:.3g}" for x in returns) or "none ended"
    cut = "" if len(returns) == episodes else f" (stopped after {MAX_STEPS} steps)"
    say(f"Wrote {path}; returns of the episodes: {total}{cut}")


def _configure_jax() -> None:
    """Keeps compiled programs between runs, so that a second start takes seconds."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache_dir() / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def main() -> None:
    _configure_jax()
    try:
        app.cli(prog="etude", description="Learn how to learn.")
    except UserError as error:
        fail(str(error), error)
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        fail(
            f"JAX could not go on: {reason(error)} If memory is short, try a smaller --batch.",
            error,
        )


def fail(message: str, error: BaseException) -> NoReturn:
    """One sentence and exit code 2; the traceback only for those who ask for it."""
    if os.environ.get("ETUDE_TRACEBACK"):
        traceback.print_exception(error)
    console = Console(stderr=True)
    console.print(f"etude: {message}", style="red", highlight=False, markup=False, soft_wrap=True)
    sys.exit(2)
