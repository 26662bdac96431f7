"""What images are worth: classifier, recipes to train it, metrics, sample grid."""
