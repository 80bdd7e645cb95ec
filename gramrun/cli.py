"""The command line: thin commands that import what they need when they run, and print what they wrote.

Exit codes: 0 done, 1 failed while running, 2 bad input or config, 130 interrupted (state saved).
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gramrun.errors import EXIT_FAILED, GramrunError, InputError
from gramrun.interruption import Interrupted

app = typer.Typer(
    name="gramrun",
    help="Train two-tower retrieval models against all pairs, by online Gramian estimation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one config key, e.g. estimator.alpha=0.1."),
]
ConfigOption = Annotated[Path, typer.Option("--config", help="A YAML file; see configs/.")]
OutputOption = Annotated[Path | None, typer.Option("--output", help="The run directory.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on where the run directory stopped.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace what is there.")]


_OUT_OF_MEMORY = re.compile(r"can't allocate memory|out of memory")


class Split(StrEnum):
    """The splits that can be evaluated."""

    validation = "validation"
    train = "train"


class PlotKind(StrEnum):
    """The figures that can be drawn."""

    map = "map"
    gram_error = "gram-error"
    trade_off = "trade-off"
    theory = "theory"
    inner_products = "inner-products"
    gravity = "gravity"


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"gramrun {version('gramrun')}")
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
    """The options that stand before a command; `_fail` looks for --debug itself."""
    if int(os.environ.get("WORLD_SIZE") or 1) > 1 and context.invoked_subcommand != "train":
        if os.environ.get("RANK", "0") != "0":
            raise typer.Exit(InputError.exit_code)  # the first process says why
        raise InputError(f"gramrun {context.invoked_subcommand} is for one process; leave torchrun out")


@app.command()
def prepare(
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="One of the names above.")],
    output: Annotated[Path, typer.Option("--output", help="The folder of the prepared corpus.")],
    source: Annotated[
        Path | None, typer.Option("--source", help="A folder or archive with the raw files.")
    ] = None,
    settings: SetOption = None,
    force: ForceOption = False,
) -> None:
    """Turn raw data into memory-mapped feature shards.

    CORPUS is one of movielens-100k, -1m, -10m, -25m, -32m, -small, -latest; wikipedia-simple, -fr, -en,
    -sql (tables of any wiki and year), -xml; enwik8; atomic (RecBole's format, your own data too);
    synthetic; simple-scale, fr-scale and en-scale (made tables of these Wikipedias' sizes).
    Without --source, raw files are looked for in $GRAMRUN_RAW, then data/raw, then downloaded.

    Example: gramrun prepare movielens-100k --output data/movielens-100k
    """
    from gramrun.preparation import describe, prepare_corpus

    manifest, written = prepare_corpus(corpus, output, source, settings or [], force=force)
    sizes = ", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in manifest["corpus"].items())
    if not written:
        typer.echo(f"{output}: up to date ({sizes}); nothing to do")
        return
    typer.echo("\n".join(describe(manifest)))
    config = shipped if (shipped := Path("configs", corpus, "sogram.yaml")).exists() else "CONFIG"
    typer.echo(f"wrote {output}: {sizes}; next: gramrun train --config {config} --set data.path={output}")


@app.command()
def train(
    config: Annotated[Path | None, typer.Option("--config", help="A YAML file; see configs/.")] = None,
    output: OutputOption = None,
    settings: SetOption = None,
    resume: ResumeOption = False,
    force: ForceOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, train nothing.")] = False,
) -> None:
    """Train a two-tower model with the configured Gramian estimator.

    With --resume, --config may be left out: the run directory holds it.

    Example: gramrun train --config configs/movielens-100k/sogram.yaml --set estimator.alpha=0.01
    """
    from gramrun import opening
    from gramrun.config_loading import dump_config
    from gramrun.data.shards import open_corpus
    from gramrun.fitting import fit, follow
    from gramrun.memory_check import check_memory
    from gramrun.processes import joined
    from gramrun.resources import estimate_resources
    from gramrun.training import check_divides
    from gramrun.watching import check_tensorboard

    with joined() as processes:
        resolved, path = opening.resolve(config, output, settings or [], resume=resume, force=force)
        check_tensorboard(resolved)
        corpus = open_corpus(resolved.data.path)
        if dry_run:
            check_divides(resolved, processes.count)
            if processes.first:
                typer.echo(dump_config(resolved), nl=False)
                for line in estimate_resources(resolved, corpus):
                    typer.echo(line)
                check_memory(resolved, corpus, processes)
                typer.echo(f"dry run: nothing written; the run would be {path}")
            return
        run, trainer = opening.open_run(
            "train", path, resolved, corpus, processes, resume=resume, force=force
        )
        saved = opening.restore(run, trainer, resume=resume)
        if not processes.first:
            follow(trainer)
            return
        last = fit(run, trainer, corpus, saved.get("losses", ()))
    result = f", MAP@10 {last['map@10']:.4f}" if "map@10" in last else ""
    typer.echo(f"wrote {path}: step {last['step']:,}{result}; next: gramrun evaluate {path}")


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    split: Annotated[Split, typer.Option(help="Which pairs are to be found.")] = Split.validation,
    candidates: Annotated[
        int | None, typer.Option(min=1, help="Right items drawn; the run's config says how many by default.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Rank all right items.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure a run's newest checkpoint: MAP@10 and more, with popularity on the same candidates.

    Example: gramrun evaluate runs/movielens-100k/sogram-seed0 --split train
    """
    from gramrun import runs
    from gramrun.baseline import evaluate_baseline
    from gramrun.data.shards import open_corpus
    from gramrun.evaluation import describe, evaluate_run

    if runs.is_baseline(run):
        baseline = runs.open_baseline(run)
        corpus = open_corpus(baseline.config.data.path)
        result = evaluate_baseline(baseline, corpus, split.value, candidates=candidates, full=full)
        runs.record_evaluation(baseline, result)
        done = f"wrote {run / runs.EVALUATION}"
    else:
        opened = runs.open_run(run)
        corpus = open_corpus(opened.config.data.path)
        result = evaluate_run(opened, corpus, split.value, candidates=candidates, full=full)
        runs.record_evaluation(opened, result)
        done = f"wrote {run / runs.EVALUATION}; next: gramrun plot map {run} --output map.png"
    if as_json:
        typer.echo(json.dumps(result))
        return
    typer.echo(describe(result))
    typer.echo(done)


@app.command()
def baseline(
    config: ConfigOption,
    output: OutputOption = None,
    settings: SetOption = None,
    force: ForceOption = False,
) -> None:
    """Fit what you would use instead (popularity, implicit or exact ALS), and measure it likewise.

    Example: gramrun baseline --config configs/movielens-100k/exact-als.yaml
    """
    from gramrun import baseline as room
    from gramrun import runs
    from gramrun.config import BaselineConfig
    from gramrun.config_loading import load_config
    from gramrun.data.shards import open_corpus
    from gramrun.evaluation import describe

    resolved = load_config(BaselineConfig, config, settings or [])
    path = output or runs.default_path(config, resolved.baseline.seed)
    results = room.run_baseline(path, resolved, open_corpus(resolved.data.path), force=force)
    for result in results:
        typer.echo(describe(result))
    typer.echo(f"wrote {path}: {results[0]['method']}; next: gramrun evaluate {path} --full")


@app.command("gram-error")
def gram_error(
    config: Annotated[Path | None, typer.Option("--config", help="A YAML file; see configs/.")] = None,
    output: OutputOption = None,
    settings: SetOption = None,
    resume: ResumeOption = False,
    force: ForceOption = False,
) -> None:
    """Measure many estimators' Gramian error on one trajectory, against the exact Gramian.

    Example: gramrun gram-error --config configs/movielens-100k/gram-error.yaml
    """
    from gramrun import gram_error as room
    from gramrun import opening
    from gramrun.data.shards import open_corpus

    resolved, path = opening.resolve(config, output, settings or [], resume=resume, force=force)
    room.check_config(resolved)
    corpus = open_corpus(resolved.data.path)
    run, trainer = opening.open_run("gram-error", path, resolved, corpus, resume=resume, force=force)
    if resume and run.field("status") == "finished":
        room.check_finished(run)
        typer.echo(f"{run.path}: finished already; nothing to do")
        return
    observers = room.Observers(resolved.gram_error.estimators, trainer)
    if saved := opening.restore(run, trainer, resume=resume):
        observers.load_state_dict(saved["observers"])
    written = room.watch(run, trainer, observers)
    typer.echo(f"wrote {written}; next: gramrun plot gram-error {run.path} --output gram-error.png")


@app.command()
def plot(
    kind: Annotated[PlotKind, typer.Argument(help="Which figure.")],
    run: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories; seeds give bands.")],
    output: Annotated[Path, typer.Option("--output", help="A .png, .svg or .pdf file.")],
) -> None:
    """Draw a figure from finished or running runs.

    Example: gramrun plot map runs/movielens-100k/* --output map.png
    """
    from gramrun import figures

    written = figures.draw(kind.value, run, output)
    typer.echo(f"wrote {written}")


@app.command()
def doctor(
    config: Annotated[Path | None, typer.Option("--config", help="Estimate memory and time for it.")] = None,
    settings: SetOption = None,
) -> None:
    """Say what this machine has, and what a config would need of it.

    Example: gramrun doctor --config configs/movielens-1m/sagram.yaml
    """
    from gramrun.config import RunConfig
    from gramrun.config_loading import load_config
    from gramrun.data.shards import open_corpus
    from gramrun.memory_check import check_memory
    from gramrun.resources import describe_machine, estimate_resources, estimate_time

    for line in describe_machine():
        typer.echo(line)
    if config is None:
        return
    resolved = load_config(RunConfig, config, settings or [])
    corpus = open_corpus(resolved.data.path)
    for line in estimate_resources(resolved, corpus):
        typer.echo(line)
    check_memory(resolved, corpus)
    typer.echo(estimate_time(resolved, corpus))


def main() -> None:
    """Run the command line; the only place where errors become messages and exit codes."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    try:
        app()
    except (GramrunError, Interrupted) as error:
        _fail(error, " ".join(str(error).split()), error.exit_code)
    except (MemoryError, RuntimeError) as error:
        # torch's own words for it, on the CPU and on a GPU; any other RuntimeError is a bug.
        if not isinstance(error, MemoryError) and not _OUT_OF_MEMORY.search(str(error)):
            raise
        _fail(error, "out of memory; for a run, `gramrun doctor --config FILE` estimates it", EXIT_FAILED)


def _fail(error: BaseException, message: str, exit_code: int) -> None:
    if "--debug" in sys.argv:
        raise error
    print(f"gramrun: {message}", file=sys.stderr)
    raise SystemExit(exit_code)
