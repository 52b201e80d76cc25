"""Numbers that tell how good a model is: losses to minimise, and metrics to report."""

from __future__ import annotations

from nnl_core.training.metrics.base import (
    Comparison,
    CountedMean,
    Mean,
    Metric,
    Sums,
    Table,
    counted,
    mean_of,
)
from nnl_core.training.metrics.choice import QUICK, Choice, MetricChoice, choices, values_of
from nnl_core.training.metrics.classes import (
    F1,
    Accuracy,
    ConfusionMatrix,
    Perplexity,
    Precision,
    Recall,
    TopNAccuracy,
    binary_accuracy,
    top_5_accuracy,
)
from nnl_core.training.metrics.losses import LOSSES, absolute_error, squared_error
from nnl_core.training.metrics.ranking import RocAuc
from nnl_core.training.metrics.shapes import alike, class_labels
from nnl_core.training.metrics.signals import Psnr, Snr, Ssim

__all__ = [
    "F1",
    "LOSSES",
    "QUICK",
    "Accuracy",
    "Choice",
    "Comparison",
    "ConfusionMatrix",
    "CountedMean",
    "Mean",
    "Metric",
    "MetricChoice",
    "Perplexity",
    "Precision",
    "Psnr",
    "Recall",
    "RocAuc",
    "Snr",
    "Ssim",
    "Sums",
    "Table",
    "TopNAccuracy",
    "absolute_error",
    "alike",
    "binary_accuracy",
    "choices",
    "class_labels",
    "counted",
    "mean_of",
    "squared_error",
    "top_5_accuracy",
    "values_of",
]
