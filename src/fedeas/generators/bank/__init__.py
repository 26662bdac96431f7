"""The image bank: addresses, slots on disk, and a generator that reads from and writes to them."""

from __future__ import annotations

from fedeas.generators.bank.addresses import Address
from fedeas.generators.bank.bank import Bank, BankedGenerator, KeptImages
from fedeas.generators.bank.slots import Verification

__all__ = ["Address", "Bank", "BankedGenerator", "KeptImages", "Verification"]
