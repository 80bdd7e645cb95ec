"""Every configuration key: its type, range and default, in frozen sections that refuse unknown keys.

`gramrun.config.loading` reads them from YAML and overrides. `configs/README.md` lists the keys and argues
the values where the paper is silent.
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
