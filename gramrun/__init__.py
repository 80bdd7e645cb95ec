"""gramrun: two-tower training against all pairs, by online Gramian estimation.

Reproduces "Efficient Training on Very Large Corpora via Gramian Estimation" (Krichene et al., ICLR 2019,
arXiv:1807.07187). Where each item of the paper lives:

    Equation 1, Figure 1       inner-product two-tower model        gramrun.model.towers
    Equation 2, ℓ              the loss of an observed pair         gramrun.training.objective
    Equation 4                 the Gramians, and their footnote     gramrun.gramian.exact, .population
    Equations 5 and 8          gravity and its surrogate ĝ          gramrun.gramian.surrogate
    Algorithms 1 and 2         one training step                    gramrun.training.step
    Algorithm 1, equation 9    SAGram                               gramrun.gramian.sagram
    Algorithm 2, equation 11   SOGram                               gramrun.gramian.sogram
    Section 3.3                batch sampling in Gramian form       gramrun.gramian.sampling
    Propositions 1 and 6       proofs by enumeration                tests/gramian/test_surrogate.py
    Proposition 2              proof by enumeration                 tests/gramian/test_sagram.py
    Proposition 3              proof by enumeration                 tests/gramian/test_unbiasedness.py
    Proposition 5              proof by enumeration                 tests/gramian/test_sogram.py
    Proposition 5              its bounds, measured                 gramrun.gramian.bounds
    Section 4.1                the Wikipedia corpora                gramrun.data.wikipedia.features, .graph
    Section 4.1                features, batches B and B'           gramrun.data.corpus, .batches
    Section 4.2, Appendix D    Gramian error on one trajectory      gramrun.training.gram_error, .trajectory
    Section 4.3                MAP@10 against 50K candidates        gramrun.evaluation.protocol, .ranking
    Appendix C                 low-rank priors                      gramrun.gramian.low_rank_prior
    Appendix E                 MovieLens                            gramrun.data.movielens

From Python: `gramrun.fit` trains in memory, `gramrun.load` opens a run (`gramrun.training.recommender`). The
training step is `gramrun.training.step`. `gramrun.runs.load` and `.table` return what runs measured as pandas
frames. docs/architecture.md explains how the packages work together.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gramrun.training.recommender import Recommender, fit, load

__all__ = ["Recommender", "fit", "load"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import PyTorch with the first use of `fit` or `load`, and not before: it takes seconds."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("gramrun.training.recommender"), name)


def __dir__() -> list[str]:
    """What notebooks complete."""
    return [*__all__, "__version__"]
