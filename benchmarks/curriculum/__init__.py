"""The synthetic suite of the curriculum's learners: `python -m curriculum.run` in `benchmarks/`."""
