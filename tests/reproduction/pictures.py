"""The texts and the SVG of a figure."""

from matplotlib.text import Text

from fedeas.views import figures as plots


def texts(figure):
    return [found.get_text() for found in figure.findobj(Text) if found.get_text()]


def svg_of(figure, folder):
    plots.save(figure, folder / "picture.svg")
    return (folder / "picture.svg").read_text()
