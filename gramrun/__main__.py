"""The program: ``gramrun`` and ``python -m gramrun``."""

import signal
import sys

from gramrun.interruption import Interrupted, interrupt_with_one_line


def main() -> None:
    """Run the command line, with Ctrl-C being one line from the first import on."""
    interrupt_with_one_line()
    try:
        from gramrun import cli

        cli.main()
    except Interrupted as interruption:  # during the import; the command line reports its own
        print(f"gramrun: {interruption}", file=sys.stderr)
        raise SystemExit(interruption.exit_code) from None
    finally:
        for number in (
            signal.SIGINT,
            signal.SIGTERM,
            signal.SIGALRM,
        ):  # done: what comes now interrupts nothing
            signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    main()
