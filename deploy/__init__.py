"""Programs that run FedEAS as a service; deploy/README.md describes them."""
