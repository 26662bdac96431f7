"""Send a run's rounds to TensorBoard, MLflow or Weights & Biases."""
