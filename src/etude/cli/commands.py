"""The command line: `train`, `discover`, `adapt`, `compare`, `tune`, `reproduce`, `envs`, `rules`,
`plot`, `play`, `inspect`, `report`."""

import dataclasses
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, NoReturn

import tyro

from etude import plugins
from etude.adaptation.config import AdaptConfig
from etude.cache import cache_dir
from etude.cli.asked import Asked, trust_named
from etude.cli.comparing import compare
from etude.cli.flags import Flags, flags_of, no_default
from etude.cli.hints import refuse_others_words, versions
from etude.cli.inspecting import inspect
from etude.cli.numbers import Whole
from etude.cli.options import RunOptions, refuse_flags_but
from etude.cli.reproducing import reproduce
from etude.cli.source import classes_in, fields_in, first_line, lineage
from etude.cli.streams import files_matter
from etude.cli.tuning import tune
from etude.errors import UserError, did_you_mean, reason
from etude.meta.discovery.config import DiscoverConfig
from etude.placing.cluster import ClusterOptions
from etude.settings import SEED_RANGE, Settings, is_seed
from etude.text import count, printable
from etude.training.config import TrainRequest
from etude.training.presets import default_of

# Whatever needs JAX, NumPy or tables is imported by the commands themselves, as late as can be:
# neither help nor a mistake nor the first line of a run should have to wait for it.

ABOUT = "Learn how to learn. (etude --version tells versions.)"
app = tyro.extras.SubcommandApp()

OPTIONS, SLOWER = RunOptions(), RunOptions(checkpoint_seconds=60.0)


@app.command
def train(
    training: Annotated[Flags, flags_of(TrainRequest(), default_of)],
    run: Annotated[Flags, flags_of(OPTIONS)],
) -> None:
    """Train agents under a rule, into a run folder."""
    from etude import envs
    from etude.training.planning import plan_named, read_plan

    asked = Asked("train", "steps", training.given, run.given, OPTIONS)
    if asked.folder is None:
        plan, origins = plan_named(TrainRequest(**asked.given))
        envs.require_known(plan.env)
    else:
        plan, origins = read_plan(asked.folder, asked.later_end), None
    about = (
        f"Training {plan.rule} on {plan.env}: {count(plan.seeds, 'seed')}, "
        f"{count(plan.num_envs, 'environment')}, {count(plan.updates, 'update')}."
    )
    kind = "online" if plan.learn_rule else "train"
    asked.show_or_run(kind, plan, plan.settings(), about, origins)


@app.command
def discover(
    discovery: Annotated[Flags, flags_of(DiscoverConfig(), lambda name: "a random rule")],
    run: Annotated[Flags, flags_of(SLOWER)],
    machines: Annotated[Flags, flags_of(ClusterOptions(), lambda name: "")],
    estimate: Annotated[bool, no_default("no")] = False,
) -> None:
    """Discover a rule: learn it by gradient descent through the learning of a population of agents.

    Use what was discovered with: etude train --rule DIR.

    Args:
        estimate: Measure each program for a few seconds, print how long all of it would take here
            and on a cluster, then stop: nothing is written.
    """
    from etude import envs, rules
    from etude.meta.discovery.presets import resolve
    from etude.meta.discovery.saved import read_config

    cluster = ClusterOptions(**machines.given).require()
    asked = Asked("discover", "meta_steps", discovery.given, run.given, SLOWER)
    if asked.folder is None:
        config, origins = resolve(asked.given)
        for name in config.every_name:
            envs.require_known(name)
        if config.from_ is not None:
            rules.kind_named(config.from_)
    else:
        config, origins = read_config(asked.folder, asked.later_end), None
    if estimate:
        return _estimate(config, asked, cluster)
    about = (
        f"Discovering a rule on {config.envs_in_words}: {count(config.agents, 'agent')}, "
        f"{count(config.inner_updates, 'inner update')}, {count(config.meta_steps, 'meta-step')}."
    )
    asked.show_or_run("discover", config, dataclasses.asdict(config), about, origins, cluster)


def _estimate(config: DiscoverConfig, asked: Asked, cluster: ClusterOptions) -> None:
    if asked.options.dry_run or asked.options.out is not None:
        raise UserError("--estimate writes nothing: it does not go with --out or --dry-run.")
    from etude.cli.estimating import estimate

    estimate(config, cluster, asked.options.force)


@app.command
def adapt(
    adaptation: Annotated[Flags, flags_of(AdaptConfig())],
    run: Annotated[Flags, flags_of(OPTIONS)],
    test: Annotated[str | None, no_default()] = None,
) -> None:
    """Learn to adapt: meta-train a policy over tasks, so that it finds its way in new ones.

    Args:
        test: Test the policies of the run in this folder on --test-tasks fresh tasks; another
            --seed draws others.
    """
    from etude import envs
    from etude.adaptation.saved import read_config

    if test is not None:
        return _test_adaptation(test, adaptation.given, run.given)
    asked = Asked("adapt", "steps", adaptation.given, run.given, OPTIONS)
    if asked.folder is None:
        config = AdaptConfig(**asked.given).filled()
        envs.require_known(config.tasks)
    else:
        config = read_config(asked.folder, asked.later_end)
    settings = config.settings()
    about = (
        f"Learning to adapt by {config.algo} on {config.tasks}: {count(config.seeds, 'seed')}, "
        f"{config.steps:,} steps, {count(settings['batch'], 'task')} per update."
    )
    asked.show_or_run("adapt", config, settings, about)


def _test_adaptation(path: str, given: Settings, of_run: Settings) -> None:
    from etude import kinds
    from etude.adaptation.saved import read_config

    if of_run.keys() & {"resume", "dry_run"}:
        raise UserError("--test only reads a run: it does not go with --resume or --dry-run.")
    named = [name for name in [*given, *of_run] if name not in ("algo", "tasks")]
    refuse_flags_but("test_tasks", "seed", given=named)
    trust_named("trust" in of_run, given)
    folder = kinds.open_folder(path, "adapt")
    read_config(folder)
    from etude.cli.running import test_adaptation

    test_adaptation(folder, given, "force" in of_run)


app.command(compare)
app.command(tune)


app.command(reproduce)


@app.command(name="envs")
def list_envs(
    suite: Annotated[tyro.conf.Positional[str], no_default("those that come along")] = "",
) -> None:
    """List the environments that come along and the suites, or the environments of a suite.

    Args:
        suite: A suite, as `atari`.
    """
    from etude import envs
    from etude.cli.terminal import print_envs, print_suite

    if not suite:
        return print_envs(envs.available(), envs.SUITES)
    if suite not in envs.SUITES:
        hint = did_you_mean(suite, envs.SUITES, f"there are: {', '.join(envs.SUITES)}.")
        raise UserError(f"There is no suite {suite!r}: {hint}")
    print_suite(envs.listed(suite))


@app.command(name="rules")
def list_rules() -> None:
    """List the update rules with their settings."""
    from etude import rules
    from etude.cli.terminal import print_rule, say

    for name, kind in rules.PUBLISHED.items():
        print_rule(name, f"The published rule: kind {kind} with its weights.")
    for name, kind in rules.KINDS.items():
        about = first_line(classes_in(kind.module)[kind.name])
        fields = fields_in(*lineage(kind.module, f"{kind.name}Config"))
        print_rule(name, about, ((f"{x.name}={x.default}", x.about) for x in fields))
    say("\nSettings follow a colon: actor_critic:discount=0.9,entropy_cost=0.02.")


@app.command
def plot(runs: tyro.conf.Positional[tuple[str, ...]], out: str = "curves.png") -> None:
    """Draw the learning curves of runs, a panel per environment.

    Args:
        runs: Run folders.
        out: Where the figure goes.
    """
    from etude.cli.plots import plot_folders
    from etude.cli.terminal import say

    if not runs:
        raise UserError("Name one or more run folders to plot.")
    files_matter()
    for undrawn in plot_folders(runs, Path(os.path.realpath(out))):
        say(f"Note: {undrawn}")
    say(f"Wrote {out}")


LONGEST_FILM = 3600


@app.command
def play(
    run: tyro.conf.Positional[str],
    out: Annotated[str | None, no_default("play.gif in the run folder")] = None,
    episodes: Annotated[Whole | None, no_default("3, or all of a trial")] = None,
    seed: Whole = 0,
    agent: Whole = 0,
    greedy: Annotated[bool, no_default("no")] = False,
    show: Annotated[bool, no_default("no")] = False,
    seconds: float = 60.0,
    trust: Annotated[bool, no_default("no")] = False,
) -> None:
    """Save an animation of a trained agent, or of one that adapts to a fresh task.

    Args:
        run: Run folder.
        out: Where the GIF goes.
        episodes: How many episodes to play: of one trial (RL²), or one before adapting and the
            others after (MAML).
        seed: Random seed of the episodes.
        agent: Which of the run's seeds to play.
        greedy: Take the likeliest action instead of sampling.
        show: Also show it in the terminal.
        seconds: The longest that the animation may be.
        trust: Import the environment or rule, if it is not Etude's, that the folder names: its code
            will run.
    """
    if episodes is not None and episodes < 1:
        raise UserError(f"--episodes must be at least 1, not {episodes}.")
    if not is_seed(seed):
        raise UserError(f"--seed must be {SEED_RANGE}, not {seed}.")
    if not 0 < seconds <= LONGEST_FILM:
        raise UserError(f"--seconds must be above 0 and at most {LONGEST_FILM}, not {seconds}.")
    if show and not sys.stdout.isatty():
        raise UserError("--show needs a terminal: standard output is none.")
    files_matter()
    trust_named(trust, {})
    from etude.cli.film import play_run
    from etude.cli.terminal import say

    say(play_run(run, out, episodes, seed, agent, greedy, show, seconds))


app.command(inspect)


@app.command
def report(
    paths: tyro.conf.Positional[tuple[str, ...]],
    out: Annotated[str | None, no_default("report.html in the folder, or here if several")] = None,
    watch: Annotated[bool, no_default("no")] = False,
    port: int = 8321,
) -> None:
    """One HTML page about runs, or reproductions: settings, curves, film, verdicts, versions.

    It holds all it needs: no network is used to open it.

    Args:
        paths: Run folders, or folders of `etude reproduce`.
        out: Where the page goes.
        watch: Serve the page to this machine alone while runs go on; it refreshes itself.
        port: Where it is served; 0 takes any that is free.
    """
    if not paths:
        raise UserError("Name one or more folders to report on.")
    if watch and out is not None:
        raise UserError("--watch serves the page and writes none: it does not go with --out.")
    if not 0 <= port < 2**16:
        raise UserError(f"--port must be from 0 to {2**16 - 1}, not {port}.")
    from etude.cli.terminal import say

    if watch:
        from etude import stopping
        from etude.report.serve import serve

        with stopping.telling(say, "\nNo longer served."):
            return serve(paths, port, lambda url: say(f"{url} shows it. Ctrl-C ends it."))
    files_matter()
    from etude.report.write import write_report

    say(f"Wrote {write_report(paths, out)}")


def _configure_jax() -> None:
    """Keeps compiled programs between runs, so that a second start takes seconds. JAX reads this
    when it is imported."""
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache_dir() / "xla"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")


def main() -> None:
    _configure_jax()
    if sys.argv[1:] == ["--version"]:
        print(versions())
        return
    style = (tyro.conf.OmitArgPrefixes, tyro.conf.DisallowNone)
    try:
        refuse_others_words(sys.argv[1:])
        app.cli(prog="etude", description=ABOUT, config=style)
    except plugins.UntrustedError as error:
        from etude.runs.provenance import command_line

        fail(f"{error.what} If you trust it: {command_line()} --trust", error)
    except UserError as error:
        fail(str(error), error)
    except Exception as error:
        if not _is_of_jax(error):
            raise
        fail(f"JAX could not go on: {reason(error)}", error)


def _is_of_jax(error: Exception) -> bool:
    """Whether JAX, if it was imported at all, ran out of something."""
    jax = sys.modules.get("jax")
    failed = (MemoryError,) if jax is None else (MemoryError, jax.errors.JaxRuntimeError)
    return isinstance(error, failed)


def fail(message: str, error: BaseException) -> NoReturn:
    """One sentence and exit code 2; the traceback only for those who ask for it."""
    from rich.console import Console

    if os.environ.get("ETUDE_TRACEBACK"):
        traceback.print_exception(error)
    console = Console(stderr=True)
    told = printable(f"etude: {message}")
    console.print(told, style="red", highlight=False, markup=False, soft_wrap=True)
    sys.exit(2)
