"""A search in its folder: started, reopened, run to its end."""

import dataclasses
import importlib.util
import os
from collections.abc import Callable

from etude import envs, kinds, rules, stopping
from etude.errors import UserError
from etude.kinds import TUNE
from etude.placing.job import Places
from etude.runs.folder import FORMAT, ID, IMPORT_FROM, KIND, MADE, VERSION, Record, RunFolder
from etude.runs.inside import refuse_linked_folders
from etude.runs.provenance import made_now
from etude.settings import split_spec
from etude.text import count
from etude.training.planning import plan_named
from etude.tuning.config import TuneConfig

BEST = "best.json"
"""The settings that were found, for `--preset`."""


def require_optuna() -> None:
    if importlib.util.find_spec("optuna") is None:
        raise UserError(
            "etude tune needs optuna, which is not installed: pip install 'etude[tune]'."
        )


def try_out(config: TuneConfig) -> None:
    """Finds the mistakes that every trial would make: environments and rule are made."""
    for goal in config.goals:
        plan = plan_named(config.request(goal)).plan
        rules.maker(plan.rule, envs.make(plan.env).observation)


def start(config: TuneConfig, out: str | None, command: str | None = None) -> RunFolder:
    """A new folder (`out`, or a fresh one under `runs/`). `command` is the one that asked for it,
    if there was one."""
    try_out(config)
    with stopping.held():
        folder = RunFolder.create(out, f"tune-{config.env}-{split_spec(config.rule)[0]}")
        with folder.locked():
            folder.require_new()
            about = {KIND: TUNE, FORMAT: VERSION, ID: folder.identity}
            origin = {IMPORT_FROM: os.getcwd(), MADE: made_now(command, works_here=False)}
            folder.write_config(about | dataclasses.asdict(config) | origin)
    return folder


def reopen(path: str, trials: int | None = None) -> tuple[TuneConfig, RunFolder]:
    """The search in a folder, to go on to its own end or to a later one."""
    folder = kinds.open_folder(path, TUNE)
    config = TuneConfig.from_saved(folder.settings())
    if trials is not None and trials < config.trials:
        raise UserError(
            f"{path} is a search of {count(config.trials, 'trial')}; --trials can only add."
        )
    return dataclasses.replace(config, trials=trials or config.trials), folder


def execute(
    config: TuneConfig,
    folder: RunFolder,
    places: Places,
    report: Callable[[Record], None] = lambda record: None,
) -> Record:
    """Searches to the end, from where it was left, and sums up."""
    from etude.tuning import results
    from etude.tuning.search import Search

    with folder.locked():
        refuse_linked_folders(folder.path)
        folder.extend("trials", config.trials)
        found = Search(config, folder, places, report).run()
        summary = results.write(config, folder, found)
        folder.write_summary(summary)  # comes last: with it, all is there
    return summary
