#!/usr/bin/env python3
"""Loads a model folder with transformers and says what it computes, to check a folder exported by Skrull elsewhere.

    pip install torch transformers safetensors numpy
    python3 scripts/check_export.py MODEL_DIR [--input-ids "1 2 3"] [--compare-logits FILE] [--same-tensors-as DIR]

Prints one JSON object. Exit code 0: everything asked for holds; 1: something differs (see "problems");
2: the folder or an argument cannot be used.
"""

import argparse
import hashlib
import json
import pathlib
import sys

import numpy as np
import torch
import transformers
from safetensors import SafetensorError, safe_open
from torch.nn.functional import cross_entropy

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
TOKENIZER_FILES = ("tokenizer.json", "vocab.json")


class UnusableInput(Exception):
    """A folder or an argument that nothing can be checked with."""


def weight_files(folder):
    """The safetensors files of a model folder: those of the index, or the single file."""
    if (folder / INDEX).exists():
        return sorted(set(json.loads((folder / INDEX).read_text())["weight_map"].values()))
    if (folder / WEIGHTS).exists():
        return [WEIGHTS]
    raise UnusableInput(f"{folder}: neither {WEIGHTS} nor {INDEX}")


def tensors_on_disk(folder):
    """name -> (dtype, shape) of every tensor, from the files' headers."""
    tensors = {}
    for file in weight_files(folder):
        try:
            with safe_open(folder / file, "np") as opened:
                parts = {name: opened.get_slice(name) for name in opened.keys()}
                found = {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in parts.items()}
        except SafetensorError as error:
            raise UnusableInput(f"{folder / file}: {error}") from error
        twice = sorted(tensors.keys() & found.keys())
        if twice:
            raise UnusableInput(f"{folder}: stored twice: {twice}")
        tensors |= found
    return tensors


def index_problems(folder):
    """What the index says against what the files hold."""
    if not (folder / INDEX).exists():
        return []
    listed = set(json.loads((folder / INDEX).read_text())["weight_map"].items())
    stored = set()
    for file in weight_files(folder):
        with safe_open(folder / file, "np") as opened:
            stored |= {(name, file) for name in opened.keys()}
    return ([f"{INDEX}: {file} does not hold {name}" for name, file in sorted(listed - stored)] +
            [f"{INDEX}: does not list {name} in {file}" for name, file in sorted(stored - listed)])


def tensor_differences(tensors, expected):
    problems = [f"tensor missing: {name}" for name in sorted(expected.keys() - tensors.keys())]
    problems += [f"tensor too many: {name}" for name in sorted(tensors.keys() - expected.keys())]
    for name in sorted(tensors.keys() & expected.keys()):
        if tensors[name] != expected[name]:
            problems.append(f"tensor {name}: {tensors[name]}, expected {expected[name]}")
    return problems


def load_model(folder, dtype):
    """The model, and what transformers had to invent, leave out or replace while loading it."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", output_loading_info=True, ignore_mismatched_sizes=True)
    problems = [f"{kind}: {sorted(map(str, info[kind]))}"
                for kind in ("missing_keys", "unexpected_keys", "mismatched_keys") if info.get(kind)]
    return model.eval(), problems


def load_tokenizer(folder):
    if not any((folder / file).exists() for file in TOKENIZER_FILES):
        return None
    return transformers.AutoTokenizer.from_pretrained(folder)


def describe_logits(logits, ids):
    """Of logits [tokens, vocabulary]: mean negative log-likelihood of the next tokens (null for a single id), argmax
    and digests."""
    nll = float(cross_entropy(logits[:-1], ids[1:])) if len(ids) > 1 else None
    return {"shape": list(logits.shape), "mean_nll_next_token": nll, "argmax": logits.argmax(-1).tolist(),
            "sum": float(logits.sum()), "sum_of_squares": float(logits.square().sum()),
            "float32_sha256": hashlib.sha256(logits.float().numpy().tobytes()).hexdigest()}


def read_logits(file, vocab_size):
    """Raw little-endian float32 [tokens, vocabulary], a .npy file, or the tensor "logits" of a .safetensors file."""
    if file.suffix == ".npy":
        values = np.load(file)
    elif file.suffix == ".safetensors":
        with safe_open(file, "np") as opened:
            values = opened.get_tensor("logits")
    else:
        values = np.fromfile(file, dtype="<f4")
    if values.size % vocab_size != 0:
        raise UnusableInput(f"{file}: {values.size} values, no multiple of the vocabulary's {vocab_size}")
    return torch.from_numpy(values.reshape(-1, vocab_size)).double()


def compare_logits(logits, file, tolerance):
    expected = read_logits(file, logits.shape[1])
    if expected.shape != logits.shape:
        raise UnusableInput(f"{file}: {expected.shape[0]} tokens, but {logits.shape[0]} input ids")
    difference = float((logits - expected).abs().max())
    # Written so that a NaN counts as a difference.
    problems = [] if difference <= tolerance else [f"logits differ by {difference}, tolerance {tolerance}"]
    return {"max_absolute_difference": difference, "tolerance": tolerance,
            "same_argmax": bool((logits.argmax(-1) == expected.argmax(-1)).all())}, problems


def parse_ids(text):
    try:
        return [int(word) for word in text.replace(",", " ").split()]
    except ValueError as error:
        raise UnusableInput(f"--input-ids: {error}") from error


def check_ids(ids, vocab_size):
    if not ids:
        raise UnusableInput("no token ids")
    outside = [token for token in ids if not 0 <= token < vocab_size]
    if outside:
        raise UnusableInput(f"token ids outside the vocabulary of {vocab_size}: {outside}")
    return torch.tensor(ids)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, help="the folder to check")
    parser.add_argument("--input-ids", help='token ids, e.g. "1 2 3"; one sequence')
    parser.add_argument("--text", help="text to tokenize with the folder's own tokenizer instead of --input-ids")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64", "bfloat16"),
                        help="what transformers computes in (default %(default)s)")
    parser.add_argument("--compare-logits", type=pathlib.Path,
                        help="expected logits: raw little-endian float32, .npy, or .safetensors with a tensor 'logits'")
    parser.add_argument("--tolerance", type=float, default=1e-4,
                        help="largest absolute difference of a logit (default %(default)s)")
    parser.add_argument("--write-logits", type=pathlib.Path, help="write the logits as raw little-endian float32")
    parser.add_argument("--same-tensors-as", type=pathlib.Path, metavar="DIR",
                        help="a model folder that must hold the same tensor names, shapes and dtypes")
    arguments = parser.parse_args()
    if arguments.input_ids is not None and arguments.text is not None:
        parser.error("--input-ids and --text exclude each other")
    if arguments.input_ids is None and arguments.text is None and (arguments.compare_logits or arguments.write_logits):
        parser.error("logits need --input-ids or --text")
    return arguments


def check(arguments):
    folder = arguments.model
    tensors = tensors_on_disk(folder)
    model, problems = load_model(folder, getattr(torch, arguments.dtype))
    problems += index_problems(folder)
    tokenizer = load_tokenizer(folder)
    result = {"model": str(folder), "class": type(model).__name__, "files": weight_files(folder),
              "tensors": len(tensors), "dtypes": sorted({dtype for dtype, _ in tensors.values()}),
              "parameters": sum(value.numel() for value in model.parameters()),
              "tie_word_embeddings": bool(model.config.tie_word_embeddings),
              "eos_token_id": model.generation_config.eos_token_id,
              "tokenizer": type(tokenizer).__name__ if tokenizer else None}

    if arguments.same_tensors_as:
        problems += tensor_differences(tensors, tensors_on_disk(arguments.same_tensors_as))

    ids = None
    if arguments.input_ids is not None:
        ids = parse_ids(arguments.input_ids)
    elif arguments.text is not None:
        if tokenizer is None:
            raise UnusableInput(f"{folder}: --text needs a tokenizer")
        ids = result["input_ids"] = tokenizer(arguments.text)["input_ids"]
    if ids is not None:
        tokens = check_ids(ids, model.config.vocab_size)
        with torch.no_grad():
            logits = model(input_ids=tokens[None], use_cache=False).logits[0].double()
        result["logits"] = describe_logits(logits, tokens)
        if arguments.write_logits:
            arguments.write_logits.write_bytes(logits.float().numpy().astype("<f4").tobytes())
        if arguments.compare_logits:
            result["comparison"], different = compare_logits(logits, arguments.compare_logits, arguments.tolerance)
            problems += different
    result["problems"] = problems
    return result


def main():
    arguments = parse_arguments()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        result = check(arguments)
    except (UnusableInput, OSError, ValueError) as error:
        print(f"check_export: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result))
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
