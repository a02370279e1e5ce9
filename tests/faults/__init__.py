"""Faults of the machine under the real processes: `table` says which and what is promised under each, `inject` brings
them about, `storm` kills both processes again and again over one run.
"""
