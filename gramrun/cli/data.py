"""The commands before training: `prepare` and `doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gramrun.base.errors import ConfigError, InputError, quoted
from gramrun.cli.options import ConfigOption, ForceOption, JsonOption, Report, SetOption

# The keys of `gramrun.data.registry.CORPORA`, whose import is too slow for completion. A test compares them.
CORPORA = (
    "movielens-100k",
    "movielens-1m",
    "movielens-10m",
    "movielens-25m",
    "movielens-32m",
    "movielens-small",
    "movielens-latest",
    "wikipedia-simple",
    "wikipedia-fr",
    "wikipedia-en",
    "wikipedia-sql",
    "wikipedia-xml",
    "enwik8",
    "atomic",
    "synthetic",
    "simple-scale",
    "fr-scale",
    "en-scale",
    "movielens-expanded",
)


def _complete_corpus(incomplete: str) -> list[str]:
    return [name for name in CORPORA if name.startswith(incomplete)]


def prepare(
    corpus: Annotated[
        str,
        typer.Argument(metavar="CORPUS", help="One of the names above.", autocompletion=_complete_corpus),
    ],
    output: Annotated[Path, typer.Option("--output", help="The folder of the prepared corpus.")],
    source: Annotated[
        Path | None, typer.Option("--source", help="A folder or archive with the raw files.")
    ] = None,
    settings: SetOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Turn raw data into memory-mapped feature shards.

    CORPUS is one of movielens-100k, -1m, -10m, -25m, -32m, -small, -latest; wikipedia-simple, -fr, -en,
    -sql (tables of any wiki and year), -xml; enwik8; atomic (RecBole's format, your own data too);
    synthetic; simple-scale, fr-scale and en-scale (enwik8, or with --source any prepared corpus, expanded to
    these Wikipedias' sizes), movielens-expanded (MovieLens 1M, to 10M or any number of ratings).
    Without --source, raw files are looked for in $GRAMRUN_RAW, then data/raw, then downloaded.

    JSON: output, written (false: nothing was to do), name, corpus (sizes), counts, content_hash.

    Example: gramrun prepare movielens-100k --output data/movielens-100k
    """
    from gramrun.config.shipped import config_for
    from gramrun.data.preparation import describe, prepare_corpus

    manifest, written = prepare_corpus(corpus, output, source, settings or [], force=force)
    report = Report(as_json)
    kept = ("name", "corpus", "counts", "content_hash")
    report.record({"output": output, "written": written, **{key: manifest[key] for key in kept}})
    sizes = ", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in manifest["corpus"].items())
    if not written:
        report.text(f"{output}: up to date ({sizes}); nothing to do")
        return
    next_step = f"gramrun train --config {config_for(corpus)} --set data.path={quoted(output)}"
    report.text(*describe(manifest), f"wrote {output}: {sizes}; next: {next_step}")


def doctor(config: ConfigOption = None, settings: SetOption = None, as_json: JsonOption = False) -> None:
    """Show the machine's resources, and with --config what a run would need.

    JSON: machine; with --config also resources and time.

    Example: gramrun doctor --config configs/movielens-1m/sagram.yaml
    """
    from gramrun.training import resources

    if settings and config is None:
        raise InputError("--set needs --config")
    report = Report(as_json)
    record: dict[str, Any] = {"machine": resources.machine()}
    report.text(*resources.describe_machine(record["machine"]))
    if config is not None:
        from gramrun.config import RunConfig
        from gramrun.config.loading import load_config
        from gramrun.data.shards import open_corpus
        from gramrun.training.checks import check_run
        from gramrun.training.memory import check_memory

        resolved = load_config(RunConfig, config, settings or [])
        corpus = open_corpus(resolved.data.path)
        observers = resolved.gram_error.estimators
        record["resources"] = resources.estimate_resources(resolved, corpus, observers=observers)
        report.text(*resources.describe_resources(record["resources"]))
        try:
            check_run(resolved, corpus, observers=observers)
        except ConfigError as error:  # `train` makes none of them
            record["resources"]["gram_error"]["refused"] = str(error)
            report.text(f"gram-error would be refused: {error}")
        check_memory(resolved, corpus)
        record["time"] = resources.estimate_time(resolved, corpus)
        report.text(resources.describe_time(record["time"]))
    report.record(record)
