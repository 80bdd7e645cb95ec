"""The losses of 30 steps of four methods; rewrite tests/loss_trace.json with: python tests/update_loss_trace.py.

A change that means to alter training's arithmetic or its random streams rewrites the file in the same commit, and
says that older runs cannot be reproduced. With --hash nothing is written: a SHA-256 of every bit of the losses and of
the trained parameters is printed for each run, which two processes on one machine must agree in.
"""

import argparse
import hashlib
import json
from pathlib import Path

from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data import synthetic
from gramrun.data.split import split_corpus
from gramrun.training.trainer import Trainer

PATH = Path(__file__).with_name("loss_trace.json")
CONFIG = Path(__file__).parents[1] / "configs" / "synthetic" / "sogram.yaml"
SETTINGS = (
    "train.steps=30",
    # Large enough that two threads share the work of a step: torch leaves less than 32,768 numbers to one.
    "train.batch_size=1024",
    "estimator.gramian_batch_size=1024",
    "model.embedding_dim=32",
    "train.gravity=1",
    "train.seed=0",
)
METHODS = ("sampling", "sogram", "sagram", "control-variate")
# The losses of these are committed.
LINEAR = {f"{m}, linear": (f"estimator.name={m}", "train.learning_rate=0.03") for m in METHODS}
# These are hashed only: where a ReLU's input is a rounding error, another processor may take the other side of it,
# which can move a loss by up to 1e-3 within the 30 steps.
HIDDEN = ("model.hidden=[64]", "train.dense_learning_rate=0.003", "train.steps=10")
HASHED = {
    "control-variate, adam": (
        "estimator.name=control-variate",
        "train.optimizer=adam",
        "train.learning_rate=0.003",
        *HIDDEN,
    ),
    "sagram, compiled": ("estimator.name=sagram", "train.learning_rate=0.03", *HIDDEN),
}
RUNS = {**LINEAR, **HASHED}


def make_corpus():
    """A planted corpus of 12,000 pairs; the same wherever it is made."""
    corpus = synthetic.generate(
        left_items=600, right_items=400, pairs_per_left_item=20, rank=4, popularity_exponent=0.8, seed=0
    )
    return split_corpus(corpus, 0.2)


def train(corpus, name, *overrides):
    """The losses of one run, and its trainer after the last step."""
    settings = ("data.path=in-memory", *SETTINGS, *RUNS[name], *overrides)
    trainer = Trainer(load_config(RunConfig, CONFIG, settings), corpus)
    return [record.loss for record in trainer.steps()], trainer


def fingerprint(losses, trainer):
    """SHA-256 over the bits of all losses and parameters."""
    digest = hashlib.sha256(" ".join(loss.hex() for loss in losses).encode())
    for parameter in trainer.model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def main():
    parser = argparse.ArgumentParser(description="Rewrite tests/loss_trace.json, or print hashes.")
    parser.add_argument("--hash", action="store_true", help="print a hash of each run, write nothing")
    arguments = parser.parse_args()
    corpus = make_corpus()
    runs = {name: train(corpus, name) for name in (HASHED if arguments.hash else LINEAR)}
    if arguments.hash:
        print(json.dumps({name: fingerprint(*run) for name, run in runs.items()}))
        return
    lines = [f'  "{name}": {json.dumps(losses)}' for name, (losses, _) in runs.items()]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"wrote {PATH}")


if __name__ == "__main__":
    main()
