#!/usr/bin/env python3
"""Generates answers on the CPU with this program and llama.cpp, alternating, through the same API of both servers.

    python decode_llama_cpp.py --qtrain build/cpu/bin/qtrain --model DIR [--threads 2] [--tokens 128] [--rounds 5]

Needs xllamacpp and gguf. The GGUF files are made by `qtrain export`; embeddings and a separate head stay in bfloat16, as
LLM.int8 and NF4 leave them (`--smallest` quantizes them too). For each weight type it prints the medians of the rounds:
milliseconds per token (from the first to the last of an answer), prompt tokens per second (until the first token), and
`ratio`, the median of llama.cpp's time over this program's in the same round. `load` is the load average before and
after. `read_gb_s` is the best memory bandwidth of the same number of threads, measured in each round; `share` is the
fraction of it that reading a token's weights takes in each program's fastest round, not counting activation caches.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import gguf
import numpy

# Our arguments, the GGUF file to compare with, and our bits per weight in the layers, including the blocks' scales.
PAIRS = {"bf16": ([], "bf16", 16), "8 bits": (["--load_in_8bit"], "q8_0", 8), "4 bits": (["--load_in_4bit"], "q4_0", 4.5)}
DENSE = ("token_embd.weight", "output.weight")
LLAMA_SERVER = """
import sys, time, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.n_ctx, p.n_parallel, p.port = sys.argv[1], 2048, 1, 0
p.cache_prompt = False
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = int(sys.argv[2])
server = xllamacpp.Server(p)
print('{"url": "' + server.listening_address + '"}', flush=True)
time.sleep(1 << 20)
"""


class Server:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        document = ""
        for line in self.process.stdout:
            document += line
            try:
                self.url = json.loads(document)["url"].rstrip("/").removesuffix("/v1")
                return
            except json.JSONDecodeError:
                continue
        sys.exit(f"{command[0]} does not serve")

    def answer(self, prompt, tokens):
        """Returns seconds to the first token, seconds from there to the last, and the number of tokens after the first."""
        body = dict(model=self.model(), prompt=prompt, max_tokens=tokens, temperature=0, stream=True)
        body["stream_options"] = dict(include_usage=True)
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        begin = time.perf_counter()
        times, usage = [], None
        with urllib.request.urlopen(request) as reply:
            for line in reply:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                usage = event.get("usage") or usage
                if event.get("choices") and event["choices"][0].get("text"):
                    times.append(time.perf_counter())
        return times[0] - begin, times[-1] - times[0], usage["completion_tokens"] - 1, usage["prompt_tokens"]

    def model(self):
        with urllib.request.urlopen(self.url + "/v1/models") as reply:
            return json.load(reply)["data"][0]["id"]

    def close(self):
        self.process.kill()
        self.process.wait()


def export(args, kind, file):
    subprocess.run([args.qtrain, "export", "--quiet", "--model", args.model, "--output", file, "--type", kind], check=True,
                   stdout=subprocess.DEVNULL)


def with_dense(file, dense, to):
    """Copies a GGUF file, taking embeddings and head from another one."""
    reader = gguf.GGUFReader(file)
    others = {t.name: t for t in gguf.GGUFReader(dense).tensors if t.name in DENSE}
    tensors = [others.get(t.name, t) for t in reader.tensors]
    writer = gguf.GGUFWriter(to, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key != "general.architecture" and not key.startswith("GGUF."):
            of_array = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key, field.contents(), field.types[0], sub_type=of_array)
    for t in tensors:
        writer.add_tensor_info(t.name, t.data.shape, t.data.dtype, t.data.nbytes, t.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for t in tensors:
        writer.write_tensor_data(t.data)
    writer.close()


def bytes_of_token(file, bits):
    """Bytes of weights that a token reads: here (`bits` per weight of the layers), and in the file. The whole head is read;
    one row of a separate embedding is negligible."""
    tensors = gguf.GGUFReader(file).tensors
    names = {t.name for t in tensors}
    read = [t for t in tensors if t.name != "token_embd.weight" or "output.weight" not in names]
    ours = sum(t.n_elements * (16 if t.name in DENSE or len(t.shape) == 1 else bits) / 8 for t in read)
    return {"qtrain": ours, "llama.cpp": sum(t.n_bytes for t in read)}


class Memory:
    """Reads more memory than the caches hold."""

    def __init__(self, threads):
        self.parts = [numpy.ones(1 << 24, numpy.float64) for _ in range(threads)]
        self.pool = ThreadPoolExecutor(threads)

    def gb_s(self):
        begin = time.perf_counter()
        list(self.pool.map(numpy.max, self.parts))
        return sum(part.nbytes for part in self.parts) / (time.perf_counter() - begin) / 1e9


def measure(name, servers, bytes_read, args):
    memory = Memory(args.threads)
    reads = [memory.gb_s()]
    load, times = [os.getloadavg()[0]], {key: [] for key in servers}
    prompt = "The history of the lighthouse begins with fires on hills. " * args.repeat
    for server in servers.values():
        server.answer("Once upon a time", 8)
    for _ in range(args.rounds):
        reads += [memory.gb_s() for _ in range(3)]
        for key, server in servers.items():
            first, _, _, count = server.answer(prompt, 2)
            _, rest, tokens, _ = server.answer("Once upon a time", args.tokens)
            times[key].append((1e3 * rest / tokens, count / first))
    load.append(os.getloadavg()[0])
    row = dict(weights=name, load=[round(x, 1) for x in load])
    for i, what in enumerate(("ms_per_token", "prompt_tokens_per_second")):
        row[what] = {key: round(statistics.median(t[i] for t in value), 2) for key, value in times.items()}
    pairs = list(zip(times["qtrain"], times["llama.cpp"]))
    row["ratio"] = round(statistics.median(theirs[0] / ours[0] for ours, theirs in pairs), 2)
    row["prompt_ratio"] = round(statistics.median(ours[1] / theirs[1] for ours, theirs in pairs), 2)
    row["read_gb_s"] = round(max(reads), 1)
    fastest = {key: min(t[0] for t in value) for key, value in times.items()}
    row["fastest_ms_per_token"] = {key: round(value, 2) for key, value in fastest.items()}
    row["share"] = {key: round(bytes_read[key] / ms / 1e6 / max(reads), 2) for key, ms in fastest.items()}
    print(json.dumps(row), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qtrain", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=30, help="sentences of the long prompt")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--weights", nargs="*", choices=PAIRS, default=list(PAIRS))
    parser.add_argument("--smallest", action="store_true", help="quantize embeddings and head of the GGUF files too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        dense = os.path.join(folder, "bf16.gguf")
        export(args, "bf16", dense)
        for name in args.weights:
            flags, kind, bits = PAIRS[name]
            file = os.path.join(folder, kind + ".gguf")
            if kind != "bf16":
                export(args, kind, file)
                if not args.smallest:
                    coded, file = file, os.path.join(folder, "equal.gguf")
                    with_dense(coded, dense, file)
            threads = str(args.threads)
            servers = {}
            try:
                servers["qtrain"] = Server([args.qtrain, "serve", "--json", "--port", "0", "--threads", threads,
                                            "--model", args.model, *flags])
                servers["llama.cpp"] = Server([sys.executable, "-c", LLAMA_SERVER, file, threads])
                measure(name, servers, bytes_of_token(file, bits), args)
            finally:
                for server in servers.values():
                    server.close()


if __name__ == "__main__":
    main()
