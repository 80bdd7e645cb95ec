"""Reproduce the paper's figures, tables and claims.

python -m experiments.reproduce [--profile NAME] [--items NAME...] [--datasets NAME...] [--seeds SEED...]
                                [--finished] [--published] [--retry] [--dry-run]
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import NoReturn

from experiments.reproduce.dry_run import dry_run
from experiments.reproduce.pipeline import reproduce
from experiments.reproduce.plans import load_profile, narrowed, profiles
from experiments.reproduce.scheduler import terminate_all
from gramrun.base.errors import GramrunError, InputError


def main() -> int:
    """Parse the arguments and run; errors are one line."""
    parser = argparse.ArgumentParser(description="Reproduce the paper's figures, tables and claims.")
    parser.add_argument("--profile", choices=profiles(), default="quick")
    parser.add_argument("--items", nargs="+", metavar="NAME", help="only these items of the profile")
    only = "only these corpora, and items without any"
    parser.add_argument("--datasets", nargs="+", metavar="NAME", help=only)
    parser.add_argument("--seeds", type=int, nargs="+", metavar="SEED", help="these, and not the profile's")
    parser.add_argument("--finished", action="store_true", help="run nothing, report what is finished")
    parser.add_argument("--published", action="store_true", help="take what is published, run the rest")
    parser.add_argument("--retry", action="store_true", help="try runs again that have failed before")
    parser.add_argument("--dry-run", action="store_true", help="only say what it would take")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _terminated)
    results = Path("results") / arguments.profile
    every = load_profile(arguments.profile, results)
    try:
        plans = narrowed(every, arguments.items, arguments.datasets, arguments.seeds)
    except InputError as error:
        parser.error(f"{arguments.profile} {error}")
    try:
        if arguments.dry_run:
            print(dry_run(plans))
            return 0
        report = reproduce(
            plans,
            arguments.profile,
            results,
            command=command_of(arguments),
            part=plans != every,
            finished=arguments.finished,
            published=arguments.published,
            retry=arguments.retry,
        )
    except GramrunError as error:
        print(f"reproduce: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("reproduce: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    print(f"wrote {report}")
    return 0


def _terminated(*_: object) -> NoReturn:
    """SIGTERM is sent to this process alone, and its runs would go on without it."""
    terminate_all()
    raise KeyboardInterrupt


def command_of(arguments: argparse.Namespace) -> str:
    """What makes the same report again."""
    if not any(
        (arguments.items, arguments.datasets, arguments.seeds, arguments.finished, arguments.published)
    ):
        return f"make reproduce PROFILE={arguments.profile}"
    parts = ["python -m experiments.reproduce --profile", arguments.profile]
    for name in ("items", "datasets", "seeds"):
        if wanted := getattr(arguments, name):
            parts += [f"--{name}", *map(str, wanted)]
    flags = ["--finished"] * arguments.finished + ["--published"] * arguments.published
    return " ".join(parts + flags)


if __name__ == "__main__":
    sys.exit(main())
