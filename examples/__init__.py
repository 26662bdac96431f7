"""Parts of one's own. This file makes the folder a package; otherwise opacus' package of the same name hides it."""
