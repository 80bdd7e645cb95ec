"""Every configuration key: its type, range and default, in frozen pydantic models that refuse unknown keys.

`gramrun.config.loading` reads configurations from YAML and overrides. `configs/README.md` lists all keys, and
gives the reasons for values that the paper does not state.
"""

from gramrun.config.base import DataSection, EvaluationSection, Interval, Section, TimedInterval
from gramrun.config.baseline import BaselineConfig, BaselineSection
from gramrun.config.estimator import EstimatorSection
from gramrun.config.prepare import (
    DumpSection,
    PlantedSection,
    PrepareConfig,
    SplitSection,
    SyntheticSection,
    WikipediaSection,
)
from gramrun.config.run import (
    GramErrorSection,
    LogSection,
    ModelSection,
    PriorSection,
    RunConfig,
    TrainingEvaluationSection,
    TrainSection,
)

__all__ = [
    "BaselineConfig",
    "BaselineSection",
    "DataSection",
    "DumpSection",
    "EstimatorSection",
    "EvaluationSection",
    "GramErrorSection",
    "Interval",
    "LogSection",
    "ModelSection",
    "PlantedSection",
    "PrepareConfig",
    "PriorSection",
    "RunConfig",
    "Section",
    "SplitSection",
    "SyntheticSection",
    "TimedInterval",
    "TrainSection",
    "TrainingEvaluationSection",
    "WikipediaSection",
]
