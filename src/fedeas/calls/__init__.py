"""The functions that Python users call: plan, generate, augment, run."""
