#!/usr/bin/env python3
"""Tokenizes a text on one thread with this program and the tokenizers library, alternating, and prints the ratio.

    python tokenize_text.py --bench ../../build/release/bin/bench_cases --tokenizer DIR --text strings.jsonl [--rounds 3]

The file has one JSON string per line. Both sides measure CPU time, excluding loading.
"""

import argparse
import json
import os
import statistics
import subprocess
import time

os.environ["TOKENIZERS_PARALLELIZM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def ours(args):
    out = subprocess.run([args.bench, "--tokenize", args.tokenizer, args.text], capture_output=True, text=True,
                         check=True).stdout
    run = json.loads(out)
    return run["seconds"], run["tokens"]


def theirs(tokenizer, texts, batch):
    begin = time.process_time()
    if batch:
        tokens = sum(len(e.ids) for e in tokenizer.encode_batch_fast(texts))
    else:
        tokens = sum(len(tokenizer.encode(t).ids) for t in texts)
    return time.process_time() - begin, tokens


def main():
    args = parse()
    from tokenizers import Tokenizer, __version__
    tokenizer = Tokenizer.from_file(os.path.join(args.tokenizer, "tokenizer.json"))
    texts = [json.loads(line) for line in open(args.text)]
    times, tokens = {"qtrain": [], "encode": [], "encode_batch_fast": []}, set()
    for _ in range(args.rounds):
        for name, run in (("qtrain", lambda: ours(args)), ("encode", lambda: theirs(tokenizer, texts, False)),
                          ("encode_batch_fast", lambda: theirs(tokenizer, texts, True))):
            seconds, count = run()
            times[name].append(seconds)
            tokens.add(count)
    assert len(tokens) == 1, f"the token counts differ: {tokens}"
    size = sum(len(t.encode()) for t in texts) / 1e6
    median = {name: statistics.median(values) for name, values in times.items()}
    print(json.dumps({"tokenizers": __version__, "megabytes": size, "tokens": tokens.pop(),
                      "megabytes_per_second": {name: size / s for name, s in median.items()},
                      "ratio_to_encode": median["encode"] / median["qtrain"],
                      "ratio_to_encode_batch_fast": median["encode_batch_fast"] / median["qtrain"]}, indent=2))


if __name__ == "__main__":
    main()
