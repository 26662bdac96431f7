"""Set up servers and nodes on which FedEAS runs, with Flower's own programs, nginx and keys.

``python -m deploy.flower`` lists the commands. Nothing here imports Flower.
"""
