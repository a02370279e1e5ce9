"""The trainer: the process that holds the device, and the only package that imports torch.

Writes `step_NNNNNN.bin`, `SHA256SUMS`, `events/`, `train.lock` and `train.pid` of a run, nothing else.
"""
