"""Run FedEAS on Flower's SuperLink and SuperNodes: keys, nodes with an executor, a deployment on one machine.

Everything here needs ``fedeas[flower]``, and uses parts of Flower that may change with its next version.
"""
