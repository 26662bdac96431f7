"""Datasets, their partition over clients, and the samples of one client."""
