# The laboratory's commands. `make` alone lists them. Each target that needs the environment makes or mends .venv first.
#   PROFILE=smoke|laptop|paper   which parameters (default laptop)
#   ARGS="..."                   further arguments for `python -m lib run` (or bench), such as ARGS="--only 11_replay_packet_effects"
#   FILE=name                    for sweep: a file, or the name of one in params/sweeps (default caps_seeds_models); ARGS="--workers 4"
#   PY=python                    use this Python (a conda environment, say) instead of .venv

PROFILE ?= laptop
ARGS ?=
FILE ?= caps_seeds_models
BOOT := $(shell command -v python3 || command -v python3.13 || command -v python3.12 || command -v python3.11 || command -v python)

ifdef PY
ENVIRONMENT :=
else
PY := .venv/bin/python
ENVIRONMENT := environment
endif
RUN := $(PY) -m lib

.DEFAULT_GOAL := help
.PHONY: help environment run sweep test lab data doctor report bench lint format clean

help: ## List the commands
	@printf 'Agent Communication Lab. PROFILE=%s\n\n' '$(PROFILE)'
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

environment:
	@if [ -z "$(BOOT)" ]; then echo "error: no python3 on the PATH; install Python 3.11, 3.12 or 3.13, then run this again"; exit 1; fi
	@"$(BOOT)" tools/make_venv.py

run: $(ENVIRONMENT) ## Run every notebook with PROFILE, then write the report (finished ones are kept)
	@$(RUN) run --profile $(PROFILE) $(ARGS); code=$$?; $(RUN) report || code=1; exit $$code

sweep: $(ENVIRONMENT) ## Run one notebook under many parameters: FILE=params/sweeps/NAME.yaml, ARGS="--workers 4"
	@$(RUN) sweep $(FILE) $(ARGS)

test: $(ENVIRONMENT) ## Lint, types, import floors, tests, and every notebook with the smoke profile
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -c "from importlinter.cli import lint_imports_command; lint_imports_command()"
	$(PY) -m pytest -n logical --maxprocesses 4 --dist loadfile

lab: $(ENVIRONMENT) ## Open the notebooks in JupyterLab
	$(PY) -m jupyter lab --notebook-dir=notebooks

data: $(ENVIRONMENT) ## Fetch the models and data that PROFILE needs
	@$(RUN) data --profile $(PROFILE)

doctor: $(ENVIRONMENT) ## Say what this machine has and what is missing
	@$(RUN) doctor

report: $(ENVIRONMENT) ## Write the HTML pages of the finished runs
	@$(RUN) report

bench: $(ENVIRONMENT) ## Time replay against the other ways to do it, with growth curves (half an hour; ARGS="--rounds 1" for less)
	@$(RUN) bench --curve-packets 4 8 12 24 48 64 --curve-tasks 1 2 4 $(ARGS)

lint: $(ENVIRONMENT) ## Lint, formatting, types and import floors only
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -c "from importlinter.cli import lint_imports_command; lint_imports_command()"

format: $(ENVIRONMENT) ## Format the code, sort imports, strip notebook outputs
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .
	$(PY) -m nbstripout --keep-id notebooks/*.ipynb

clean: ## Remove .venv and the tools' caches (outputs/ and fetched models stay)
	rm -rf .venv .venv-setup.lock .venv-setup.log .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find lib tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
