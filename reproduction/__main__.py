"""``python -m reproduction``."""

from reproduction.command import main

main()
