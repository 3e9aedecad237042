"""The command line: `train`, `discover`, `adapt`, `reproduce`, `envs`, `rules`, `plot`, `play`."""

import dataclasses
import difflib
import itertools
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Annotated, Any, NoReturn

import jax
import tyro
from rich.console import Console
from rich.table import Table

from etude import envs, rules
from etude.adaptation.config import AdaptConfig
from etude.cli.running import (
    RunOptions,
    flags_given,
    interruptible,
    opened,
    refuse_flags_but,
    require_end,
    watched,
)
from etude.cli.terminal import (
    list_experiments,
    out,
    print_discovery,
    print_scores,
    print_summary,
    print_verdicts,
    say,
)
from etude.errors import UserError, reason
from etude.meta.discovery.config import DiscoverConfig
from etude.rules.disco.weights import cache_dir
from etude.runs.folder import RunFolder
from etude.settings import SEED_RANGE, is_seed
from etude.text import duration
from etude.training.config import TrainConfig

app = tyro.extras.SubcommandApp()


@app.command
def train(
    config: tyro.conf.OmitArgPrefixes[TrainConfig] = TrainConfig(),
    options: tyro.conf.OmitArgPrefixes[RunOptions] = RunOptions(),
) -> None:
    """Train agents under a rule, into a run folder."""
    from etude.cli.plots import label_of
    from etude.runs.figures import has_curve, plot_curves, plot_learned
    from etude.training.run import Setup, new_folder, open_folder, run

    with opened(config, options, Setup.create, new_folder, open_folder) as (setup, folder):
        config = setup.config
        say(
            f"Training {config.rule} on {config.env}: {config.seeds} seed(s), "
            f"{config.num_envs} environments, {config.updates:,} updates → {folder.path}"
        )
        if getattr(setup.task.params, "max_steps_in_episode", None) == 1:
            say(
                "Note: every episode is cut after 1 step, gymnax's default; if that is not meant, "
                "give the environment `default_params` with another max_steps_in_episode."
            )
        total = config.steps_after(config.updates)

        def describe(record: dict[str, Any]) -> str:
            return f"{record['steps']:,} of {total:,} steps · return {record['return']:.3g}"

        with watched(setup, folder, options, "Training", describe) as loop_options:
            result = run(setup, folder, **loop_options)
        require_end(result.summary["updates"], setup, folder, "train")
        records = folder.metrics()
        if has_curve(records):
            plot_curves([(label_of(folder), records)], folder.path / "curve.png")
        if config.learn_rule and (followed := setup.rule.watched):
            plot_learned(records, followed, folder.path / "learned.png")
        print_summary(result.summary, folder)


@app.command
def discover(
    config: tyro.conf.OmitArgPrefixes[DiscoverConfig] = DiscoverConfig(),
    options: tyro.conf.OmitArgPrefixes[RunOptions] = RunOptions(checkpoint_seconds=60.0),
) -> None:
    """Discover a rule: learn it by gradient descent through the learning of a population of agents.

    Use what was discovered with: etude train --rule DIR.
    """
    from etude.meta.discovery import report
    from etude.meta.discovery.run import DiscoveryRun, new_folder, open_folder, run

    with opened(config, options, DiscoveryRun.create, new_folder, open_folder) as (work, folder):
        config, total = work.config, work.updates
        say(
            f"Discovering a rule on {', '.join(config.env_names)}: {config.agents} agents, "
            f"{config.inner_updates} inner updates, {total:,} meta-steps → {folder.path}"
        )

        def describe(record: dict[str, Any]) -> str:
            return report.describe(record, total)

        with watched(work, folder, options, "Discovering", describe) as loop_options:
            summary = run(work, folder, **loop_options)
        require_end(summary["meta_steps"], work, folder, "discover")
        print_discovery(summary, folder)


@app.command
def adapt(
    config: tyro.conf.OmitArgPrefixes[AdaptConfig] = AdaptConfig(),
    options: tyro.conf.OmitArgPrefixes[RunOptions] = RunOptions(),
    test: str | None = None,
) -> None:
    """Learn to adapt: meta-train a policy over tasks, so that it finds its way in new ones.

    Args:
        test: Adapt the policies of the run in this folder to fresh tasks: --test-tasks of them,
            others for another --seed.
    """
    from etude.adaptation.run import AdaptRun, new_folder, open_folder, plot, run

    if test is not None:
        _test_adaptation(test, config, options)
        return
    with opened(config, options, AdaptRun.create, new_folder, open_folder) as (work, folder):
        config, steps = work.config, work.updates * work.method.steps_per_update
        say(
            f"Learning to adapt by {config.algo} on {config.tasks}: {config.seeds} seed(s), "
            f"{work.updates:,} updates of {config.batch} tasks → {folder.path}"
        )

        def describe(record: dict[str, Any]) -> str:
            return (
                f"{record['steps']:,} of {steps:,} steps · return on test tasks "
                f"{record['test_before']:.3g} → {record['test_after']:.3g}"
            )

        with watched(work, folder, options, "Training", describe) as loop_options:
            summary = run(work, folder, **loop_options)
        require_end(summary["updates"], work, folder, "adapt")
        plot(folder.metrics(), folder.path / "curve.png")
        print_scores(summary)
        say(f"{duration(summary['seconds'])}, {summary['steps_per_second']:,.0f} steps/s.")
        say(f"Adapt it to fresh tasks with: etude adapt --test {folder.path}")


def _test_adaptation(path: str, config: AdaptConfig, options: RunOptions) -> None:
    from etude.adaptation.run import judged, kept_policies, read_folder

    if options.resume is not None:
        raise UserError("--test only reads a run: it does not go with --resume.")
    refuse_flags_but("--test-tasks", "--seed", others=("--test", "--algo", "--tasks"))
    work, folder = read_folder(path)
    for name in ("algo", "tasks"):
        own, given = getattr(work.config, name), getattr(config, name)
        if f"--{name}" in flags_given() and given != own:
            raise UserError(f"{path} is a run of --{name} {own}, not {given}.")
    seed = config.seed or 2**32 - 1  # the run itself was judged by number 0
    print_scores(judged(work, kept_policies(work, folder), config.test_tasks, seed))


MOST_SEED = 1_000_000
"""Of a reproduction, which makes seeds of its own from it."""


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
    if seeds < 2:
        raise UserError("--seeds must be at least 2, for there to be an interval.")
    if not 0 <= seed < MOST_SEED:
        raise UserError(f"--seed must be from 0 to {MOST_SEED - 1:,}, not {seed}.")
    folder = RunFolder.create(out, f"reproduce-{name}")
    options = Options(quick, seeds, seed)
    started = time.monotonic()
    result = interruptible(lambda: EXPERIMENTS[name].run(options, say), folder)
    write(result, name, options, folder)
    print_verdicts(result.verdicts)
    for note in result.notes:
        say(f"Note: {note}")
    took = duration(time.monotonic() - started)
    say(f"{took}, {seeds} seeds. Figure and numbers: {folder.path}")
    if quick:
        say("This was the short version: its verdicts mean nothing.")


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
    from etude.cli.plots import plot_folders

    if not runs:
        raise UserError("Name one or more run folders to plot.")
    plot_folders(runs, Path(out))
    say(f"Wrote {out}")


@app.command
def play(
    run: tyro.conf.Positional[str],
    out: str | None = None,
    episodes: int | None = None,
    seed: int = 0,
    agent: int = 0,
    greedy: bool = False,
    show: bool = False,
) -> None:
    """Save an animation of a trained agent, or of one that adapts to a fresh task.

    Args:
        run: Run folder.
        out: Where the GIF goes; by default play.gif in the run folder.
        episodes: How many episodes to play: of one trial (RL²; by default all), or one before
            adapting and the others after (MAML); by default 3.
        seed: Random seed of the episodes.
        agent: Which of the run's seeds to play.
        greedy: Take the likeliest action instead of sampling.
        show: Also show it in the terminal.
    """
    from etude.cli.film import MAX_STEPS, plan, play_run

    if episodes is not None and episodes < 1:
        raise UserError(f"--episodes must be at least 1, not {episodes}.")
    if not is_seed(seed):
        raise UserError(f"--seed must be {SEED_RANGE}, not {seed}.")
    episodes, about = plan(run, episodes)
    path, returns = play_run(run, out, episodes, seed, agent, greedy, show)
    total = ", ".join(f"{x:.3g}" for x in returns) or "none ended"
    cut = "" if len(returns) == episodes else f" (stopped after {MAX_STEPS} steps)"
    say(f"Wrote {path}; returns of the episodes: {total}{cut}{about}")


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
