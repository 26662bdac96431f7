"""Run directories, and accuracies from their records. Needs no torch."""
