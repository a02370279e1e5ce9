"""The operating system's side of a service: who runs, what it is told, what it tells.

Imports `andrea_rundir`, the standard library and `sdnotify`; nothing heavy, so that a command starts fast.
"""
