# The only entry point. Every target sets up what it needs on a fresh machine.
PYTHON ?= python3
BIN    := .venv/bin
READY  := .venv/.ready
RUN    ?= runs/demo
BLOCKED := env --block-signal=USR1 --block-signal=TERM

.PHONY: help demo test crash faults storm soak fuzz check bench bench-curriculum bench-real gpu-check clean

help:
	@echo "make demo       train a small model on real text, here and now (under 10 minutes on 2 cores)"
	@echo "make test       every check and every test"
	@echo "make crash      every state that a power cut can leave (all cores; needs strace)"
	@echo "make faults     every call of trainer and proxy refused once, and the other faults of the table (half an hour; needs strace, root)"
	@echo "make storm      300 kills of trainer and proxy over one run, which ends as a quiet one (10 minutes)"
	@echo "make soak       100,000 steps with pivots, forks, restarts and kills: memory, descriptors, history (5 minutes)"
	@echo "make fuzz       the fuzz tests with 20 times as many examples, other ones each time (20 minutes)"
	@echo "make check      format, lint, types, import layers"
	@echo "make bench      one table of speed, side by side (three quarters of an hour, 4 GB of memory and of disk)"
	@echo "make bench-curriculum  the learners on synthetic learning curves (25 minutes)"
	@echo "make bench-real the learners on real text with a small model (20 minutes; goes on where it was killed)"
	@echo "make gpu-check  one unattended check of a CUDA machine (5 minutes)"
	@echo "make clean      remove the virtual environment, caches and the demo run"

# torch comes first and pinned; one that is there already (the CPU wheel, say) is kept.
$(READY): pyproject.toml constraints.txt
	@echo "making .venv: torch and the rest are fetched, which takes minutes"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Trainer and proxy beside each other, as their units start them. Ctrl-C reaches both.
demo: $(READY)
	@test -e $(RUN)/run.toml || $(BIN)/andrea init $(RUN) --demo
	@trap : INT; \
	$(BLOCKED) $(BIN)/andrea-proxy --run $(RUN) & proxy=$$!; \
	$(BLOCKED) $(BIN)/andrea-train --run $(RUN); code=$$?; \
	kill -TERM $$proxy 2>/dev/null; wait $$proxy; exit $$code
	@$(BIN)/andrea status $(RUN)
	@echo
	@echo "To go on:      make demo   (it starts where it stopped; kill it any way you like)"
	@echo "To look:       $(BIN)/andrea status $(RUN)"
	@echo "To go further: raise max_steps in $(RUN)/run.toml, then make demo"
	@echo "To start over: rm -r $(RUN)"

check: $(READY)
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/mypy benchmarks/*.py
	$(BIN)/mypy tests/harness/*.py tests/crash/*.py tests/faults/*.py tests/fuzz/*.py
	$(BIN)/lint-imports

# Two workers for two cores; tests of one file share their runs.
test: check
	$(BIN)/pytest -n 2 --dist worksteal

# The power-cut simulator's whole exploration; `make test` has a part of it.
crash: $(READY)
	cd tests && ../$(BIN)/python -m crash

# System calls refused, and kills; `make test` has some of both.
faults: $(READY)
	FAULTS=all $(BIN)/pytest tests/faults --ignore tests/faults/test_storm.py

storm: $(READY)
	cd tests && ../$(BIN)/python -m faults.storm

soak: $(READY)
	cd tests && ../$(BIN)/python -m faults.soak

# Hurt files for every reader, many and fresh; `make test` has a few, the same each time.
fuzz: $(READY)
	FUZZ_TIMES=20 $(BIN)/pytest -n 2 --dist worksteal tests/fuzz -o timeout=0

# Ours beside what one would use instead and beside what disk and processor can do at all.
bench: $(READY)
	$(BIN)/python benchmarks/bench.py

# The learners on synthetic learning curves: about 25 minutes of one core.
bench-curriculum: $(READY)
	cd benchmarks && ../$(BIN)/python -m curriculum.run

# The learners on real text with a small real model: about 20 minutes of one core, results in runs/bench-real.
bench-real: $(READY)
	cd benchmarks && ../$(BIN)/python -m curriculum.real

gpu-check: $(READY)
	$(BIN)/python benchmarks/gpu_check.py

clean:
	rm -rf .venv .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache runs/demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
