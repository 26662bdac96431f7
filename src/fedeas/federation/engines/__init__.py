"""Engines deliver a broadcast to some clients and bring the replies back; nothing else."""
