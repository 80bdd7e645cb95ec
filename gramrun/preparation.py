"""``gramrun prepare``: raw files → corpus → shards, doing nothing where nothing changed."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gramrun.config import PrepareConfig
from gramrun.config_loading import load_config
from gramrun.data import atomic, movielens, shards, sources, synthetic
from gramrun.data.corpus import Corpus
from gramrun.data.raw_files import RawFiles
from gramrun.data.split import tuning_seed, without_validation
from gramrun.errors import InputError
from gramrun.provenance import provenance

PARSER_VERSION = 1  # raise when any reader gives another corpus from the same files
DOWNLOADS = Path("data/raw")

CORPORA = (*sources.CORPORA, "atomic", "synthetic")

_log = logging.getLogger(__name__)


def prepare_corpus(
    name: str, output: Path, source: Path | None, overrides: Sequence[str], *, force: bool = False
) -> tuple[dict[str, Any], bool]:
    """Prepare a corpus under `output`.

    Args:
        name: one of `CORPORA`.
        output: the folder of the shards.
        source: where the raw files are; None to search and download.
        overrides: ``--set`` settings of `PrepareConfig`.
        force: replace a prepared corpus that differs.

    Returns:
        The manifest, and whether anything was written.

    Raises:
        InputError: for an unknown corpus, unusable raw files, or an occupied `output`.
    """
    if name not in CORPORA:
        raise InputError(f"no corpus is called {name}; there are {', '.join(CORPORA)}")
    config = load_config(PrepareConfig, None, overrides)
    raw = _locate(name, source)
    origin = _origin(name, config, raw)
    known = _existing(output, origin["fingerprint"], force)
    if known is not None:
        return known, False
    corpus = _read(name, config, raw)
    if raw is not None and not raw.verified and name != "atomic":
        _log.warning("%s: not verified: %s%s", raw.origin, raw.note, _shortfall(name, corpus))
    fraction, seed = config.split.validation_fraction, config.split.seed
    if config.split.tuning_fraction is not None:
        corpus = without_validation(corpus, fraction, seed)
        fraction, seed = config.split.tuning_fraction, tuning_seed(seed)
    manifest = shards.write_corpus(
        corpus, output, validation_fraction=fraction, split_seed=seed, origin=origin
    )
    return manifest, True


def _locate(name: str, source: Path | None) -> RawFiles | None:
    if name == "synthetic":
        if source is not None:
            raise InputError("synthetic is made, not read; leave --source out")
        return None
    if name == "atomic":
        if source is None:
            raise InputError("atomic needs --source: the folder with NAME.inter, NAME.item and NAME.user")
        return atomic.find(source)
    folders = [Path(raw)] if (raw := os.environ.get("GRAMRUN_RAW")) else []
    return sources.locate(name, source, [*folders, DOWNLOADS], DOWNLOADS)


def _read(name: str, config: PrepareConfig, raw: RawFiles | None) -> Corpus:
    if name == "synthetic":
        return synthetic.generate(**config.synthetic.model_dump())
    assert raw is not None
    return atomic.read(raw) if name == "atomic" else movielens.read(name, raw)


def _shortfall(name: str, corpus: Corpus) -> str:
    """Say so where ratings are missing: a file cut off between two lines reads like a whole one."""
    official, read = sources.OFFICIAL[name].ratings, corpus.counts["ratings_read"]
    return f"; it has {read:,} of the official {official:,} ratings" if official and read < official else ""


def _origin(name: str, config: PrepareConfig, raw: RawFiles | None) -> dict[str, Any]:
    """Provenance for the manifest, with the fingerprint of everything that decides the shards."""
    # Settings that are null are left out, so that a new one does not make every prepared corpus another.
    unused = set() if name == "synthetic" else {"synthetic"}
    settings = config.model_dump(mode="json", exclude=unused, exclude_none=True)
    deciding: Mapping[str, Any] = {
        "corpus": name,
        "settings": settings,
        "inputs": _inputs(name, raw),
        "parser_version": PARSER_VERSION,
        "schema_version": shards.SCHEMA_VERSION,
    }
    fingerprint = hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()
    found = {"source": raw.origin, "verified": raw.verified, "verification": raw.note} if raw else {}
    return {**provenance(), **deciding, **found, "fingerprint": fingerprint}


def _inputs(name: str, raw: RawFiles | None) -> dict[str, str]:
    if raw is None:
        return {}
    return dict(raw.sha256) if name == "atomic" else movielens.content_sha256(name, raw)


def _existing(output: Path, fingerprint: str, force: bool) -> dict[str, Any] | None:
    """The manifest of an intact corpus with this fingerprint at `output`, or None where there is room."""
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return None
    is_corpus = (output / shards.MANIFEST).is_file()
    if not is_corpus:
        raise InputError(f"{output}: exists and is no prepared corpus; choose another --output")
    if force:
        return None
    manifest = shards.read_manifest(output)
    if manifest["origin"]["fingerprint"] != fingerprint:
        raise InputError(
            f"{output}: holds {manifest['name']} prepared from other inputs, settings or by another version; "
            "replace it with --force or choose another --output"
        )
    shards.verify(output, manifest)
    return manifest
