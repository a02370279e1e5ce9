"""Faults of the machine under the real processes: `table` says which and what is promised under each, `lives` and
`pair` are what they befall, `storm` kills both processes again and again over one run, `soak` is a long life of one.
"""
