"""``gramrun prepare``: raw files → corpus → shards. Does nothing if inputs and settings are unchanged."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gramrun.base.errors import ConfigError, InputError, RunError
from gramrun.base.files import check_replaceable
from gramrun.base.locks import locked
from gramrun.base.provenance import provenance
from gramrun.config import PrepareConfig
from gramrun.config.loading import load_config
from gramrun.data import registry as corpora
from gramrun.data import shards
from gramrun.data.registry import Found
from gramrun.data.split import tuning_seed, without_validation
from gramrun.data.threads import start_thread

PARSER_VERSION = 1  # increase when a reader gives another corpus from the same files


def prepare_corpus(
    name: str, output: Path, source: Path | None, overrides: Sequence[str], *, force: bool = False
) -> tuple[dict[str, Any], bool]:
    """Prepare a corpus under `output`.

    Args:
        name: one of `corpora.CORPORA`.
        output: the folder of the shards.
        source: the place of the raw files; None to search and download.
        overrides: ``--set`` settings of `PrepareConfig`.
        force: replace a prepared corpus that differs.

    Returns:
        The manifest, and whether anything was written.

    Raises:
        InputError: for an unknown corpus, unusable raw files, or an `output` that is occupied, or cannot be
            written.
    """
    config = load_config(PrepareConfig, None, overrides)
    if source is not None and output.resolve() in (source.resolve(), *source.resolve().parents):
        raise InputError(f"{output}: holds the raw data, {source}; choose another --output")
    occupied = _is_occupied(output, force)  # before anything is downloaded
    found = corpora.find(name, config, source)
    if unread := config.model_fields_set - {"split", *found.sections, *found.unhashed}:
        raise ConfigError(f"--set {min(unread)}: {name} does not read this section")
    fraction, seed = config.split.validation_fraction or found.validation_fraction, config.split.seed
    by = config.split.by
    # In the background: the checksums of large files take as long as parsing them.
    origin = start_thread(partial(_origin, name, config, found, fraction))  # fraction changes below
    if occupied:
        return _existing(output, origin()["fingerprint"]), False
    try:
        with locked(output):
            if _is_occupied(output, force):  # another process prepared it while this one waited
                return _existing(output, origin()["fingerprint"]), False
            corpus = found.read(output.absolute().parent)
            if config.split.tuning_fraction is not None:
                corpus = without_validation(corpus, fraction, seed, by)
                fraction, seed = config.split.tuning_fraction, tuning_seed(seed)
            manifest = shards.write_corpus(
                corpus,
                output,
                validation_fraction=fraction,
                split_seed=seed,
                split_by=by,
                origin=origin(),
            )
    except RunError as error:  # the output cannot be written: an input error
        raise InputError(f"{error}; make room, or choose another --output") from error
    return manifest, True


def describe(manifest: Mapping[str, Any]) -> list[str]:
    """Lines with the counts of what was read and dropped and, for a wiki, its row of the corpus table."""
    lines = [f"  {name.replace('_', ' ')}: {value:,}" for name, value in manifest["counts"].items()]
    if "pages" in manifest["corpus"]:
        columns = {name: manifest["corpus"][name] for name in ("pages", "links", "ngrams", "categories")}
        lines.append(f"{'corpus':<20}" + "".join(f"{name:>14}" for name in columns))
        lines.append(f"{manifest['name']:<20}" + "".join(f"{value:>14,}" for value in columns.values()))
    return lines


def _origin(name: str, config: PrepareConfig, found: Found, fraction: float) -> dict[str, Any]:
    """Provenance for the manifest, with a fingerprint of everything that determines the shards."""
    # Without null settings: a new optional setting keeps the fingerprint of every prepared corpus.
    settings = config.model_dump(mode="json", include={"split", *found.sections}, exclude_none=True)
    settings["split"]["validation_fraction"] = fraction
    if config.split.by == "pairs":  # for the same reason
        del settings["split"]["by"]
    deciding: Mapping[str, Any] = {
        "corpus": name,
        "settings": settings,
        "inputs": dict(found.inputs()),
        "parser_version": PARSER_VERSION,
        "schema_version": shards.SCHEMA_VERSION,
    }
    fingerprint = hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()
    return {**provenance(), **deciding, **found.origin, "fingerprint": fingerprint}


def _is_occupied(output: Path, force: bool) -> bool:
    """Whether `output` holds a prepared corpus that must not be replaced.

    Raises:
        InputError: `output` holds something else, or cannot be written.
    """
    check_replaceable(output)
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        place = next(folder for folder in (output, *output.absolute().parents) if folder.exists())
        if not (place.is_dir() and os.access(place, os.W_OK)):
            raise InputError(f"{output}: {place} is no folder that can be written; choose another --output")
        return False
    for part in (shards.MANIFEST, "pairs"):
        if not (output / part).exists():
            raise InputError(
                f"{output}: exists and is no prepared corpus (no {part}); choose another --output"
            )
    return not force


def _existing(output: Path, fingerprint: str) -> dict[str, Any]:
    """The manifest of the intact corpus at `output`, which must have this fingerprint."""
    manifest = shards.read_manifest(output)
    if manifest["origin"].get("fingerprint") != fingerprint:
        raise InputError(
            f"{output}: holds {manifest['name']} prepared from other inputs, settings or by another version; "
            "replace it with --force or choose another --output"
        )
    shards.verify(output, manifest)
    return manifest
