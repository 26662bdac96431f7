"""A model that draws torch's random numbers while it trains; worker processes import it from here."""

from math import prod

from torch import nn


class Dropping(nn.Module):
    """One hidden layer, of which half is dropped."""

    def __init__(self, shape, num_classes):
        super().__init__()
        self.hidden = nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), 8), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(8, num_classes)

    def features(self, x):
        return self.hidden(x)

    def forward(self, x):
        return self.head(self.features(x))
