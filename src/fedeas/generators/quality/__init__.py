"""What images are worth: a classifier, metrics, a sample grid."""
