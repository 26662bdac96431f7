"""Parts of one's own. This file makes the folder a package, so that opacus' package of the same name does not hide it."""
