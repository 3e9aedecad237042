"""Where the process of a job starts: `python -m etude.placing.child CORES PARENT COMMAND…`.

It runs an `etude` command on those cores, for as long as the process lives that started it.
"""

import os
import runpy
import signal
import sys
import threading
import time

LOOK_EVERY = 0.5
"""Seconds between two looks at whether the process is there that started this one."""


def main() -> None:
    cores, parent = sys.argv[1], int(sys.argv[2])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(map(int, cores.split(","))))
    threading.Thread(target=_stop_after, args=(parent,), daemon=True).start()
    sys.argv = ["etude", *sys.argv[3:]]
    runpy.run_module("etude", run_name="__main__")


def _stop_after(parent: int) -> None:
    """Asks this process to save what it has when the other is gone, once. (The system can tell of
    it, too, but does so for each of the other's threads: the second time, nothing is saved.)"""
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY)
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    main()
