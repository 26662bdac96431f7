"""Federated training: rounds, clients, engines, checkpoints, and a run from config to summary."""
