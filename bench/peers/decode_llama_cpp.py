#!/usr/bin/env python3
"""Answers on the processor by this program and by llama.cpp, through the same API of both servers, in turns.

    python decode_llama_cpp.py --qtrain build/cpu/bin/qtrain --model DIR [--threads 2] [--tokens 128] [--rounds 5]

Needs xllamacpp. The GGUF files are made by `qtrain export`. For each type of weights it prints the medians of the rounds:
milliseconds a token (from the first to the last of an answer), tokens of the prompt a second (until the first token), and
`ratio`, the median of llama.cpp's time over this program's in the same round. `load` is the load average before and after.
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

# What of this program is held against which file: LLM.int8 and NF4 leave embeddings and the head in bfloat16.
PAIRS = {"bf16": ([], "bf16"), "8 bits": (["--load_in_8bit"], "q8_0"), "4 bits": (["--load_in_4bit"], "q4_0")}
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
        """Seconds until the first token, seconds from there to the last, and how many came after the first."""
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


def measure(name, servers, args):
    load, times = [os.getloadavg()[0]], {key: [] for key in servers}
    prompt = "The history of the lighthouse begins with fires on hills. " * args.repeat
    for server in servers.values():
        server.answer("Once upon a time", 8)
    for _ in range(args.rounds):
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
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in args.weights:
            flags, kind = PAIRS[name]
            file = os.path.join(folder, kind + ".gguf")
            subprocess.run([args.qtrain, "export", "--quiet", "--model", args.model, "--output", file, "--type", kind],
                           check=True)
            threads = str(args.threads)
            servers = {}
            try:
                servers["qtrain"] = Server([args.qtrain, "serve", "--json", "--port", "0", "--threads", threads,
                                            "--model", args.model, *flags])
                servers["llama.cpp"] = Server([sys.executable, "-c", LLAMA_SERVER, file, threads])
                measure(name, servers, args)
            finally:
                for server in servers.values():
                    server.close()


if __name__ == "__main__":
    main()
