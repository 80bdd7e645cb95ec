"""The program: ``gramrun`` and ``python -m gramrun``."""

import os
import signal
import sys

from gramrun.base.interruption import Interrupted, interrupt_with_one_line


def main() -> None:
    """Run the command line; Ctrl-C is one line also during imports."""
    interrupt_with_one_line()
    try:
        from gramrun import cli

        cli.main()
    except Interrupted as interruption:  # during the import; later, `cli.main` reports it
        print(f"gramrun: {interruption}", file=sys.stderr)
        raise SystemExit(interruption.exit_code) from None
    except SystemExit as leaving:
        if os.environ.get("WORLD_SIZE") not in (None, "", "1"):
            # After an exchange, a process can hang or abort during the interpreter's shutdown.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None))
        raise
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    main()
