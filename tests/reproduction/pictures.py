"""The texts and the SVG of a figure."""

from matplotlib.text import Text

from reproduction.figures import style as plots


def texts(figure):
    return [found.get_text() for found in figure.findobj(Text) if found.get_text()]


def svg_of(figure, folder):
    plots.save_all([("picture", figure)], folder)
    return (folder / "picture.svg").read_text()
