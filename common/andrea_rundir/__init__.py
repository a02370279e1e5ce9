"""The run directory: the contract that trainer, proxy and command line share, and nothing else does.

Lowest layer: imports the standard library, numpy and pydantic, and no other package of ours.
"""
