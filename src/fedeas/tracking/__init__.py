"""Send a run's rounds to TensorBoard, MLflow or Weights & Biases."""

from fedeas.tracking.base import Follower, Tracker, parse_tracker

__all__ = ["Follower", "Tracker", "parse_tracker"]
