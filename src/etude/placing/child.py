"""Where the process of a job starts: `python -m etude.placing.child CORES PARENT COMMAND…`.

It runs an `etude` command on those cores, for as long as the process lives that started it.
"""

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    cores, parent = sys.argv[1], int(sys.argv[2])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(map(int, cores.split(","))))
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)
        if os.getppid() != parent:  # it has died before we asked to be told
            sys.exit("etude: the process that started this one is gone.")
    sys.argv = ["etude", *sys.argv[3:]]
    runpy.run_module("etude", run_name="__main__")


if __name__ == "__main__":
    main()
