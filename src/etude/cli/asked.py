"""A run as the flags of its command ask for it, shown or started."""

import dataclasses
from typing import TYPE_CHECKING

from etude import plugins
from etude.cli.options import RunOptions, refuse_flags_but
from etude.cli.streams import files_matter
from etude.placing.cluster import ClusterOptions
from etude.settings import Settings

if TYPE_CHECKING:
    from etude.runs.folder import RunFolder


def trust_named(files: bool, given: Settings) -> None:
    """What the user names on the command line is theirs to run; what files name, if they say so."""
    plugins.name_modules(given)
    if files:
        plugins.trust_files()


class Asked:
    """A run as the flags of its command ask for it: a new one, or one in a folder that goes on."""

    def __init__(
        self, command: str, end: str, given: Settings, of_run: Settings, defaults: RunOptions
    ):
        """`end` is the setting that says how long a run is, the only one that may change later."""
        self.command, self.end, self.given = command, end, given
        self.options = dataclasses.replace(defaults, **of_run)
        trust_named(self.options.trust, given)
        self.folder: RunFolder | None = None
        if self.options.resume is not None:
            refuse_flags_but(end, given=[*given, *of_run])
            from etude import kinds

            self.folder = kinds.open_folder(self.options.resume, command)

    @property
    def later_end(self) -> int | None:
        return self.given.get(self.end)

    def show_or_run(
        self,
        kind: str,
        config: object,
        settings: Settings,
        about: str,
        origins: dict[str, str] | None = None,
        cluster: ClusterOptions | None = None,
    ) -> None:
        """Prints the plan of a run, or runs it, on a cluster if there is one. `origins`: where its
        settings come from, if not all are flags, defaults, or those of the folder."""
        from etude.cli.terminal import print_plan, say

        if self.options.dry_run:
            if self.folder is None:
                from etude.cli.running import try_out

                try_out(config)
            elsewhere = "default" if self.folder is None else "run folder"
            plain = {name: "flag" if name in self.given else elsewhere for name in settings}
            return print_plan(about, settings, origins or plain)
        files_matter()
        if self._tell_if_finished(settings[self.end]):
            return
        say(about)
        from etude.cli import running

        running.run(kind, config, self.options, settings[self.end], cluster)

    def _tell_if_finished(self, end: int) -> bool:
        """Whether the run in the folder is done up to this end: then nothing is compiled."""
        if self.folder is None or self.folder.config().get(self.end) != end:
            return False
        if (summary := self.folder.summary()) is None:
            return False
        from etude.cli.terminal import PRINT, say

        say("This run is finished.")
        PRINT[self.command](summary, self.folder)
        return True
