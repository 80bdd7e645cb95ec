"""The configuration of ``gramrun baseline``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gramrun.config.base import DataSection, EvaluationSection, Section


class BaselineSection(Section):
    """A model without two-tower training (`gramrun.evaluation.baselines`)."""

    name: Literal["popularity", "implicit-als", "exact-als", "ease", "feature-popularity", "tfidf"] = Field(
        description="the method; the last two rank by features, items never seen included"
    )
    embedding_dim: int = Field(35, ge=1, description="k, of both kinds of ALS")
    sweeps: int = Field(30, ge=1, description="passes over both sides: implicit ALS's, exact ALS's at most")
    seed: int = Field(0, ge=0, lt=2**32, description="of the random start")
    gravity: float = Field(30.0, ge=0, description="exact ALS: λ, the weight of the gravity term")
    gamma_left: float = Field(0.0, ge=0, le=1, description="exact ALS: left items weigh (training pairs)^γ")
    gamma_right: float = Field(0.0, ge=0, le=1, description="exact ALS: the same for right items")
    target: Literal["one", "value"] = Field("one", description="exact ALS: s_i: 1, or the corpus's own")
    tolerance: float = Field(1e-8, ge=0, description="exact ALS: stops where a sweep lowers F by less of it")
    conjugate_gradient_steps: int = Field(
        0, ge=0, description="exact ALS: a sweep makes so many on each side, 10 times faster; 0: Cholesky"
    )
    regularization: float = Field(0.01, ge=0, description="implicit ALS: ρ, the weight of ‖u‖² and ‖v‖²")
    confidence: float = Field(1.0, gt=0, description="implicit ALS: weight of a training pair; others have 1")
    l2: float = Field(500.0, gt=0, description="EASE: the weight of ‖B‖²")

    @property
    def label(self) -> str:
        """The method's name in tables, such as ``exact ALS λ=30 γ=0,0``."""
        if self.name == "exact-als":
            return f"exact ALS λ={self.gravity:g} γ={self.gamma_left:g},{self.gamma_right:g}"
        if self.name == "ease":
            return f"EASE l2={self.l2:g}"
        return {
            "implicit-als": "implicit ALS",
            "feature-popularity": "feature popularity",
            "tfidf": "TF-IDF",
        }.get(self.name, self.name)


class BaselineConfig(Section):
    """One fit of a baseline."""

    data: DataSection
    baseline: BaselineSection
    evaluation: EvaluationSection = EvaluationSection()
