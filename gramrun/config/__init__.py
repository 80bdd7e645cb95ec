"""Every configuration key: its type, range and default, in frozen pydantic models that refuse unknown keys.

`gramrun.config.loading` reads configurations from YAML and overrides. `configs/README.md` lists all keys, and
gives the reasons for values that the paper does not state.
"""

from gramrun.config.base import EvaluationSection, Interval, Section, TimedInterval
from gramrun.config.baseline import BaselineConfig, BaselineSection
from gramrun.config.estimator import EstimatorSection
from gramrun.config.prepare import PrepareConfig
from gramrun.config.run import LogSection, ModelSection, PriorSection, RunConfig

__all__ = [
    "BaselineConfig",
    "BaselineSection",
    "EstimatorSection",
    "EvaluationSection",
    "Interval",
    "LogSection",
    "ModelSection",
    "PrepareConfig",
    "PriorSection",
    "RunConfig",
    "Section",
    "TimedInterval",
]
