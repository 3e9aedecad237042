"""Runs in a terminal: they are set up, watched until they end, and what came out is printed."""

from typing import Any

from etude.adaptation import run as adaptation
from etude.adaptation.config import AdaptConfig
from etude.cli.options import RunOptions
from etude.cli.plots import label_of
from etude.cli.running import opened, require_end, watched
from etude.cli.terminal import print_discovery, print_scores, print_summary, say
from etude.errors import UserError
from etude.meta.discovery import report
from etude.meta.discovery import run as discovery
from etude.meta.discovery.config import DiscoverConfig
from etude.runs.figures import has_curve, plot_curves, plot_learned
from etude.text import duration
from etude.training import run as training
from etude.training.config import TrainPlan


def train(plan: TrainPlan, options: RunOptions) -> None:
    with opened(
        options,
        lambda: training.Setup.planned(plan),
        training.new_folder,
        lambda path: training.open_folder(path, plan.steps),
    ) as (setup, folder):
        if getattr(setup.task.params, "max_steps_in_episode", None) == 1:
            say(
                "Note: every episode is cut after 1 step, gymnax's default; if that is not meant, "
                "give the environment `default_params` with another max_steps_in_episode."
            )
        total = plan.steps_after(plan.updates)

        def describe(record: dict[str, Any]) -> str:
            return f"{record['steps']:,} of {total:,} steps · return {record['return']:.3g}"

        with watched(setup, folder, options, "Training", describe) as loop_options:
            result = training.run(setup, folder, **loop_options)
        require_end(result.summary["updates"], setup, folder, "train")
        records = folder.metrics()
        if has_curve(records):
            plot_curves([(label_of(folder), records)], folder.path / "curve.png")
        if plan.learn_rule and (followed := setup.rule.watched):
            plot_learned(records, followed, folder.path / "learned.png")
        print_summary(result.summary, folder)


def discover(config: DiscoverConfig, options: RunOptions) -> None:
    with opened(
        options,
        lambda: discovery.DiscoveryRun.create(config),
        discovery.new_folder,
        lambda path: discovery.open_folder(path, config.meta_steps),
    ) as (work, folder):

        def describe(record: dict[str, Any]) -> str:
            return report.describe(record, work.updates)

        with watched(work, folder, options, "Discovering", describe) as loop_options:
            summary = discovery.run(work, folder, **loop_options)
        require_end(summary["meta_steps"], work, folder, "discover")
        print_discovery(summary, folder)


def adapt(config: AdaptConfig, options: RunOptions) -> None:
    with opened(
        options,
        lambda: adaptation.AdaptRun.create(config),
        adaptation.new_folder,
        lambda path: adaptation.open_folder(path, config.steps),
    ) as (work, folder):
        steps = work.updates * work.method.steps_per_update

        def describe(record: dict[str, Any]) -> str:
            return (
                f"{record['steps']:,} of {steps:,} steps · return on test tasks "
                f"{record['test_before']:.3g} → {record['test_after']:.3g}"
            )

        with watched(work, folder, options, "Training", describe) as loop_options:
            summary = adaptation.run(work, folder, **loop_options)
        require_end(summary["updates"], work, folder, "adapt")
        adaptation.plot(folder.metrics(), folder.path / "curve.png")
        print_scores(summary)
        say(f"{duration(summary['seconds'])}, {summary['steps_per_second']:,.0f} steps/s.")
        say(f"Adapt it to fresh tasks with: etude adapt --test {folder.path}")


def test_adaptation(path: str, given: dict[str, Any]) -> None:
    """How the policies of a run do on fresh tasks."""
    work, folder = adaptation.read_folder(path)
    for name in ("algo", "tasks"):
        own = getattr(work.config, name)
        if given.get(name, own) != own:
            raise UserError(f"{path} is a run of --{name} {own}, not {given[name]}.")
    asked = AdaptConfig(**given)
    seed = asked.seed or 2**32 - 1  # the run itself was judged by number 0
    policies = adaptation.kept_policies(work, folder)
    print_scores(adaptation.judged(work, policies, asked.test_tasks, seed))
