"""The command line: thin commands, which import libraries only when they run.

    data        prepare, doctor
    training    train, baseline, gram-error
    results     evaluate, plot, export, neighbors, recommend
    options     shared options and output

Exit codes: 0 done, 1 failed while running, 2 bad input or config, 130 interrupted (state saved). An error is
one line on stderr. With --json, stdout has one JSON object and nothing else.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import sys
from typing import Annotated, Any

import typer

from gramrun.base.errors import EXIT_FAILED, GramrunError, InputError, one_line
from gramrun.base.interruption import Interrupted
from gramrun.base.torchrun import environment_number, process_count
from gramrun.cli import data, results, training

app = typer.Typer(
    name="gramrun",
    help="Train two-tower retrieval models against all pairs, by online Gramian estimation.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# The system's errors for a path that cannot exist, or that the user may not access.
_NO_SUCH_PLACE = {errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENOTDIR}
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
_OUT_OF_MEMORY = re.compile(r"can't allocate memory|out of memory")
# The error of a wrong option or argument. Typer's versions take this class from different modules.
_USAGE_ERROR: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def _print_version(wanted: bool) -> None:
    if wanted:
        from gramrun import __version__

        typer.echo(f"gramrun {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and leave.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options before the command; `_fail` reads --debug from the arguments."""
    if process_count() > 1 and context.invoked_subcommand != "train":
        if environment_number("RANK", 0) != 0:
            raise typer.Exit(InputError.exit_code)  # the first process reports the error
        raise InputError(f"gramrun {context.invoked_subcommand} is for one process; leave torchrun out")


for command in (
    data.prepare,
    training.train,
    results.evaluate,
    training.baseline,
    training.gram_error,
    results.plot,
    results.export,
    results.neighbors,
    results.recommend,
    data.doctor,
):
    app.command(command.__name__.replace("_", "-"))(command)


def main() -> None:
    """Run the command line; errors become messages and exit codes only here."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As for stderr: a terminal without UTF-8 must not end a run at an α.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        _check_is_text(sys.argv[1:])
        left = app(sys.argv[1:] or ["--help"], prog_name="gramrun", standalone_mode=False)
    except (GramrunError, Interrupted) as error:
        _fail(error, str(error), error.exit_code)
    except _USAGE_ERROR as error:
        _fail(error, _usage(error), InputError.exit_code)
    except OSError as error:
        if error.filename is None and error.errno in _DISK_FULL:
            # Files are written under `disk_errors`, so this is stdout or numba's cache. Discard the rest.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            _fail(error, f"the output cannot be written: {error.strerror}; make room there", EXIT_FAILED)
        if error.filename is None or error.errno not in _NO_SUCH_PLACE:
            raise
        place = f"{error.filename}: cannot be used: {error.strerror}; name another place"
        _fail(error, place, InputError.exit_code)
    except (MemoryError, RuntimeError) as error:
        # torch's messages on the CPU and on a GPU; any other RuntimeError is a bug.
        if not isinstance(error, MemoryError) and not _OUT_OF_MEMORY.search(str(error)):
            raise
        _fail(error, "out of memory; for a run, `gramrun doctor --config FILE` estimates it", EXIT_FAILED)
    raise SystemExit(left or 0)


def _check_is_text(arguments: list[str]) -> None:
    """Refuse arguments that are not UTF-8; YAML, JSON and some libraries cannot represent them."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:  # Python decodes other bytes to surrogates
            raise InputError(f"{argument!a} is not UTF-8; type or name it in UTF-8") from None


def _usage(error: Any) -> str:
    """The message of a usage error, with the command whose --help explains it."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "gramrun"
    message = error.format_message().replace("Value error, ", "")  # pydantic's prefix
    return f"{message.rstrip('. ')}; see {command} --help"


def _fail(error: BaseException, message: str, exit_code: int) -> None:
    if "--debug" in sys.argv:
        raise error
    print(f"gramrun: {one_line(message)}", file=sys.stderr)
    raise SystemExit(exit_code)
