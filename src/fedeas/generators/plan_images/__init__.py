"""The images of a plan: where they come from, and the files that hold them."""
