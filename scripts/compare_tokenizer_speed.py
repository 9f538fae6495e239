#!/usr/bin/env python3
"""Speed of Skrull's tokenizer beside the Rust package `tokenizers` (pip install tokenizers) on the same files, one
thread each, and whether the ids are the same in number.

    scripts/compare_tokenizer_speed.py --tokenizer FOLDER FILE...

A FILE *.jsonl is many short texts (its rows' messages or text); any other file is one long text. FOLDER needs a
tokenizer.json. The Rust package is measured call by call (encode) and, as its fastest way on one thread, with one
encode_batch call. Times are the processor's, the best of --repeats runs, so the Rust package's own cache is warm too.
"""

import argparse
import json
import os
import pathlib
import subprocess
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer, __version__  # noqa: E402


def read_texts(path):
    data = path.read_bytes().decode("utf-8")
    if path.suffix != ".jsonl":
        return [data]
    texts = []
    for line in data.split("\n"):
        if not line.strip():
            continue
        row = json.loads(line)
        if "text" in row:
            texts.append(row["text"])
        texts += [m["content"] for m in row.get("messages", []) if isinstance(m["content"], str)]
    return texts


def best_time(repeats, work):
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    return best, result


def count(encodings):
    return sum(len(e.ids) for e in encodings)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--tokenizer", required=True, type=pathlib.Path, help="folder with tokenizer.json")
    parser.add_argument("--program", default=root / "build" / "tests" / "tokenizer_speed", type=pathlib.Path)
    parser.add_argument("--repeats", default=5, type=int)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()

    command = [arguments.program, arguments.tokenizer, str(arguments.repeats), *arguments.files]
    ours = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    rust_load, rust = best_time(1, lambda: Tokenizer.from_file(str(arguments.tokenizer / "tokenizer.json")))
    print(f"loading: skrull {ours['load_seconds']:.3f} s, tokenizers {__version__} {rust_load:.3f} s")
    columns = f"{'file':40} {'texts':>6} {'MB':>6} {'tokens':>8} | {'skrull':>8} {'encode':>8} {'batch':>8} MB/s"
    print(columns + " | skrull to the faster", flush=True)
    for path, result in zip(arguments.files, ours["files"]):
        texts = read_texts(path)
        one_by_one, encodings = best_time(
            arguments.repeats, lambda: [rust.encode(t, add_special_tokens=False) for t in texts]
        )
        batch, _ = best_time(arguments.repeats, lambda: rust.encode_batch(texts, add_special_tokens=False))
        if count(encodings) != result["tokens"]:
            raise SystemExit(f"{path}: skrull has {result['tokens']} tokens, tokenizers {count(encodings)}")
        megabytes = result["bytes"] / 1e6
        seconds = result["best_seconds"]
        print(
            f"{path.name[:40]:40} {result['texts']:6} {megabytes:6.2f} {result['tokens']:8} | {megabytes / seconds:8.1f} "
            f"{megabytes / one_by_one:8.1f} {megabytes / batch:8.1f}      | {min(one_by_one, batch) / seconds:5.1f}x"
        )


if __name__ == "__main__":
    main()
