"""Where the command `etude` starts."""

import os
import signal
import sys


def main() -> None:
    # Imports take seconds, in which Ctrl-C should be quiet as well. An exception would not do: JAX
    # has callbacks in which it would be printed and lost.
    before = signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from etude.cli.commands import main

    signal.signal(signal.SIGINT, before)
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read what is printed has gone (`etude … | head`), which is no mistake of theirs.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)  # as rich does


if __name__ == "__main__":
    main()
