"""Where the command `etude` starts."""

from etude import stopping
from etude.cli import streams


def main() -> None:
    # Before the imports, which take seconds.
    stopping.listen()
    with streams.forgiving():
        from etude.cli.commands import main

        main()


if __name__ == "__main__":
    main()
