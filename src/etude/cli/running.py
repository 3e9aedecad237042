"""Runs in a terminal: they are set up, watched until they end, and what came out is printed."""

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from etude import envs, kinds, rules, stopping
from etude.adaptation import run as adaptation
from etude.adaptation.config import AdaptConfig
from etude.api import reopen
from etude.cli.loggers import loggers
from etude.cli.options import RunOptions
from etude.cli.progress import ProgressReport
from etude.cli.terminal import PRINT, out, print_scores, say
from etude.errors import UserError
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.run import DiscoveryRun
from etude.meta.discovery.start import start_maker
from etude.placing import devices
from etude.placing.cluster import ClusterOptions
from etude.placing.rays import connected
from etude.runs import estimates
from etude.runs.folder import RunFolder
from etude.runs.lifecycle import execute, start
from etude.runs.provenance import command_line
from etude.runs.run import Run
from etude.settings import Settings
from etude.text import count
from etude.training.config import TrainPlan

Made = TypeVar("Made")


def run(
    kind: str,
    config: object,
    options: RunOptions,
    end: int | None,
    cluster: ClusterOptions | None = None,
) -> None:
    """A new run, or the one in a folder that goes on to `end`; on a cluster if there is one."""
    with connected(cluster or ClusterOptions()):  # first: it may be a long way to a mistake there
        with estimates.forcing(options.force), devices.using(options.devices):
            if options.resume is None:
                if isinstance(config, DiscoverConfig) and config.memory_limit is not None:
                    say(f"Compiling, to see how many agents fit into {config.memory_limit}…")
                run = kinds.class_called(kind).create(config)
                folder = start(run, options.out, command_line())
            else:
                run, folder = reopen(options.resume, end)
        if isinstance(run, DiscoveryRun) and cluster is not None:
            run = run.on(cluster, say)
        _watched(run, folder, options)


def _watched(run: Run, folder: RunFolder, options: RunOptions) -> None:
    """To its end, or until it is stopped."""
    say(f"Run folder: {folder.path}")
    goes_on = options.resume is not None
    if goes_on and not folder.has_checkpoint:
        say("There is no checkpoint yet: from the start.")
    for note in run.notes(resumed=goes_on):
        say(note)
    seeds = run.settings().get("seeds", 1)
    progress = ProgressReport(out, run.doing, run.updates, run.describe, seeds, run.max_seconds)
    command = kinds.KINDS[run.kind].command
    go_on = f"Go on with: etude {command} --resume {folder.path}"
    with (
        stopping.telling(say, f"Stopped. {go_on}", options.grace),
        stopping.last_duty(progress.stop),
        progress,
        loggers(run, folder, options) as log,
    ):
        result = execute(
            run,
            folder,
            report=progress,
            on_record=log,
            should_stop=stopping.asked,
            checkpoint_seconds=options.checkpoint_seconds,
            begin=lambda done: _tell_start(run, done) if goes_on and done else None,
        )
    if folder.summary() is None:
        how = "Stopped and saved." if result.done else "Stopped before the first update."
        say(f"{how} {go_on}")
        sys.exit(stopping.exit_code())
    PRINT[command](result.summary, folder)


def _tell_start(run: Run, done: int) -> None:
    say(f"Goes on after {done:,} of {count(run.updates, 'update')}.")


def try_out(config: object) -> None:
    """Makes what a new run needs, so that a dry run finds the same mistakes; a rule's published
    weights are not fetched."""
    if isinstance(config, TrainPlan):
        rules.maker(config.rule, envs.make(config.env).observation)
    elif isinstance(config, DiscoverConfig):
        start_maker(config, [envs.make(name) for name in config.every_name])
    elif isinstance(config, AdaptConfig):
        adaptation.AdaptRun.untraced(config)


def test_adaptation(folder: RunFolder, given: Settings, force: bool) -> None:
    """How the policies of a run do on fresh tasks."""
    work = adaptation.read_folder(folder)
    for name in ("algo", "tasks"):
        own = getattr(work.config, name)
        if given.get(name, own) != own:
            raise UserError(f"{folder.path} is a run of --{name} {own}, not {given[name]}.")
    asked = AdaptConfig(**given)
    seed = asked.seed or 2**32 - 1  # the run itself was judged by number 0
    policies = adaptation.kept_policies(work, folder)
    with estimates.forcing(force):
        print_scores(adaptation.judged(work, policies, asked.test_tasks, seed))


def reproduced(work: Callable[[], Made], folder: RunFolder) -> Made:
    """The result of an experiment. When a signal ends it, its trainings save what they have; it has
    nothing else to be kept."""

    def discard() -> None:
        with suppress(OSError):
            folder.path.rmdir()

    told = "\nStopped. Trainings are kept, and go on when this is run again; nothing else is."
    with stopping.telling(say, told), stopping.last_duty(discard):
        return work()
