"""FedEAS on Flower's SuperLink and SuperNodes: keys, nodes with a warm executor, and a whole deployment on one machine.

Everything here needs ``fedeas[flower]``, and uses parts of Flower that may change with its next version.
"""
