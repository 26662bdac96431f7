"""Parts of one's own: a dataset, a policy, a generator and more, named as ``python:examples.MODULE:NAME`` in a config.

This file makes the folder a package. opacus installs a package of the same name, which would hide a plain folder.
"""
