"""Where the command `etude` starts."""

import sys


def main() -> None:
    try:
        from etude.cli import main  # takes seconds, in which Ctrl-C should be quiet as well

        main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
