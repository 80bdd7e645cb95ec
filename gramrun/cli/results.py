"""The commands that read run directories: `evaluate`, `plot`, `export`, `neighbors`, `recommend`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from gramrun.base.errors import InputError, RunError, quoted
from gramrun.cli.options import DataOption, ForceOption, JsonOption, Report, RunArgument, Side


def evaluate(
    run: RunArgument,
    split: Annotated[
        Literal["validation", "train"], typer.Option(help="The pairs to be found.")
    ] = "validation",
    candidates: Annotated[
        int | None, typer.Option(min=1, help="Right items drawn; the run's config says how many by default.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Rank all right items.")] = False,
    among: Annotated[
        Literal["all", "unseen"], typer.Option(help="Rank all right items, or those without a training pair.")
    ] = "all",
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a run's newest checkpoint: MAP@10 and more, with popularity on the same candidates.

    JSON: split, map@10, ci95, map@10_relevant, recall@10, recall@100, ndcg@10, effective_rank,
    average_precision, left_items, candidates, among, full, train_positives, candidate_hash, seconds,
    data_hash, popularity, step, method. effective_rank is null for EASE.

    Example: gramrun evaluate runs/movielens-100k/sogram-seed0 --split train
    """
    from gramrun import runs
    from gramrun.evaluation.protocol import describe
    from gramrun.evaluation.trained import evaluate_run
    from gramrun.runs import directory

    if full and candidates is not None:
        raise InputError("give --full or --candidates, not both")
    opened = runs.open_directory(run)
    runs.evaluations(opened)  # before the work: a damaged file would lose its result
    corpus = runs.corpus_of(opened, data)
    candidates = corpus.right.items if full else candidates
    result = evaluate_run(opened, corpus, split, candidates=candidates, among=among)
    report = Report(as_json)
    report.text(describe(result))  # before it is written: a full disk or another's run loses no result
    try:
        record = runs.record_evaluation(opened, result)
    except (InputError, RunError):
        report.record({key: value for key, value in result.items() if key != directory.PER_ITEM})
        raise
    report.record(record)
    hint = (
        ""
        if isinstance(opened, runs.BaselineRun)
        else f"; next: gramrun plot map {quoted(run)} --output map.png"
    )
    report.text(f"wrote {run / directory.EVALUATION}{hint}")


def plot(
    kind: Annotated[
        Literal["map", "gram-error", "trade-off", "theory", "inner-products", "gravity"],
        typer.Argument(help="Which figure."),
    ],
    run: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories; seeds give bands.")],
    output: Annotated[Path, typer.Option("--output", help="A .png, .svg or .pdf file.")],
) -> None:
    """Draw a figure from finished or running runs.

    Example: gramrun plot map runs/movielens-100k/* --output map.png
    """
    from gramrun.runs import figures, plotting

    plotting.save(figures.make(kind, run), output)
    typer.echo(f"wrote {output}")


def export(
    run: RunArgument,
    output: Annotated[Path, typer.Option("--output", help="A .parquet, .npy, .npz or .faiss file.")],
    side: Annotated[Side, typer.Option(help="Whose items.")] = "right",
    data: DataOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write the embeddings of all items of a side to one file, for an index or another program.

    Parquet has a row for each item: item (its number), id (as in the raw data), title and what else is
    known of it, embedding. A .npy file is float32, items × dimensions, in the order of item numbers; a .npz
    file has that array, ids and origin; a .faiss file is an exact index of inner products.

    JSON: output, bytes, run, method, step, side, item, items, embedding_dim, corpus, config_hash,
    data_hash, gramrun.

    Example: gramrun export runs/movielens-100k/sogram-seed0 --output items.parquet
    """
    from gramrun.evaluation.export import export_embeddings

    written = export_embeddings(run, output, side, data=data, force=force)
    report = Report(as_json)
    report.record(written)
    report.text(
        f"wrote {output}: {written['items']:,} {written['side']} items ({written['item']}), "
        f"{written['embedding_dim']} dimensions, step {written['step']:,}"
    )


def neighbors(
    run: RunArgument,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="A title, its beginning or an id.")],
    count: Annotated[int, typer.Option(min=1, help="How many.")] = 10,
    side: Annotated[Side | None, typer.Option(help="Where the title is looked up.")] = None,
    to: Annotated[Side | None, typer.Option(help="Whose items are ranked.")] = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the items nearest to one: of its own side by cosine, of the other side by inner product.

    The title is looked up on the right side, whose own items are ranked: movies like a movie. Where both
    sides hold the same items, pages that a page may link to are ranked: --side left --to right.

    JSON: run, method, step, query (side, item, id, title), to, score (cosine or inner product),
    neighbors (item, id, title, score).

    Example: gramrun neighbors runs/movielens-100k/sogram-seed0 "Toy Story" --count 5
    """
    from gramrun.evaluation.neighbors import describe, find_neighbors

    found = find_neighbors(run, title, side=side, to=to, count=count, data=data)
    report = Report(as_json)
    report.record(found)
    report.text(describe(found))


def recommend(
    run: RunArgument,
    title: Annotated[str, typer.Argument(metavar="LEFT", help="The id of a left item, or its title.")],
    count: Annotated[int, typer.Option(min=1, help="How many.")] = 10,
    seen: Annotated[bool, typer.Option("--seen", help="Also what the item has in training.")] = False,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the right items of greatest score for a left item, without those that it has in training.

    JSON: that of `gramrun neighbors`.

    Example: gramrun recommend runs/movielens-100k/sogram-seed0 196 --count 5
    """
    from gramrun.evaluation.neighbors import describe, find_neighbors

    found = find_neighbors(run, title, side="left", to="right", count=count, data=data, exclude_seen=not seen)
    report = Report(as_json)
    report.record(found)
    report.text(describe(found, "" if seen else ", without those of its training pairs"))
