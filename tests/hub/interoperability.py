#!/usr/bin/env python3
"""Checks that qtrain and huggingface_hub read what the other has fetched, against a hub on this machine.

Needs huggingface_hub (pip install huggingface_hub) and a built program; it is not a part of the ordinary tests.
Usage: interoperability.py PROGRAM
"""
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from answering_hub import AnsweringHub, git_sha1

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 64,
          "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64,
          "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "hidden_act": "silu", "tie_word_embeddings": True}


def safetensors():
    header = json.dumps({"x": {"dtype": "F32", "shape": [50000], "data_offsets": [0, 200000]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(i * 7 % 251 for i in range(200000))


MODEL = {"config.json": json.dumps(CONFIG).encode(), "tokenizer.json": b"{}", "README.md": b"# model\n",
         "model.safetensors": safetensors()}
ROWS = {"README.md": b"---\nconfigs:\n- config_name: a\n  data_files:\n  - split: train\n    path: a/train-*\n"
                     b"- config_name: b\n  data_files: b.jsonl\n---\n",
        "a/train-0.jsonl": b'{"text": "one"}\n', "b.jsonl": b'{"text": "two"}\n'}
REPOSITORIES = {"models/o/m": MODEL, "datasets/o/d": ROWS}


def is_large(path):
    return path.endswith(".safetensors")


class Hub(AnsweringHub):
    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        for name, files in REPOSITORIES.items():
            for action in ("revision", "tree"):
                if path.startswith(f"/api/{name}/{action}/"):
                    return self.answer(200, json.dumps(self.listing(name, files, action)).encode(),
                                       [("Content-Type", "application/json")])
            place = "/" + (name[len("models/"):] if name.startswith("models/") else name) + "/resolve/"
            if path.startswith(place):
                return self.send_file(files, path[len(place):].split("/", 1)[1])
        self.answer(404, b"{}")

    @staticmethod
    def listing(name, files, action):
        entries = []
        for path, contents in files.items():
            lfs = {"sha256": hashlib.sha256(contents).hexdigest(), "size": len(contents), "pointerSize": 130}
            if action == "tree":
                entry = {"type": "file", "path": path, "size": len(contents), "oid": git_sha1(contents)}
                lfs = {"oid": lfs["sha256"], "size": lfs["size"], "pointerSize": 130}
            else:
                entry = {"rfilename": path, "size": len(contents), "blobId": git_sha1(contents)}
            entries.append(entry | ({"lfs": lfs} if is_large(path) else {}))
        kind, repo = name.split("/", 1)
        return entries if action == "tree" else {"id": repo, "sha": COMMIT, "siblings": entries}

    def send_file(self, files, path):
        if path not in files:
            return self.answer(404, b"", [("X-Error-Code", "EntryNotFound"), ("X-Repo-Commit", COMMIT)])
        contents = files[path]
        name = hashlib.sha256(contents).hexdigest() if is_large(path) else git_sha1(contents)
        headers = [("ETag", f'"{name}"'), ("X-Repo-Commit", COMMIT), ("X-Linked-Etag", f'"{name}"'),
                   ("X-Linked-Size", str(len(contents))), ("Accept-Ranges", "bytes")]
        begin = int(self.headers.get("Range", "bytes=0-").split("=")[1].split("-")[0])
        if begin == 0:
            return self.answer(200, contents, headers)
        headers.append(("Content-Range", f"bytes {begin}-{len(contents) - 1}/{len(contents)}"))
        self.answer(206, contents[begin:], headers)


def run(command, cache, endpoint, **more):
    environment = os.environ | {"HF_HUB_CACHE": f"{cache}/hub", "HF_ENDPOINT": endpoint, "HOME": str(cache)} | more
    result = subprocess.run(command, env=environment, text=True, capture_output=True, cwd=cache, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


LIBRARY = """
import json, sys
from huggingface_hub import hf_hub_download, scan_cache_dir, snapshot_download
kind, repo, offline, files = sys.argv[1], sys.argv[2], sys.argv[3] == "offline", json.loads(sys.argv[4])
folder = snapshot_download(repo, repo_type=kind, allow_patterns=files, local_files_only=offline)
for file in files:
    assert hf_hub_download(repo, file, repo_type=kind, local_files_only=offline) == f"{folder}/{file}", file
report = scan_cache_dir()
assert not report.warnings, report.warnings
info = next(r for r in report.repos if r.repo_id == repo and r.repo_type == kind)
print(json.dumps({"folder": folder, "refs": sorted(info.refs), "size": info.size_on_disk}))
"""


def library(cache, endpoint, kind, repo, files, offline):
    words = [sys.executable, "-c", LIBRARY, kind, repo, "offline" if offline else "online", json.dumps(files)]
    return json.loads(run(words, cache, endpoint, HF_HUB_OFFLINE="1" if offline else "0", HF_HUB_DISABLE_PROGRESS_BARS="1"))


def check(condition, what):
    print(("ok      " if condition else "failed  ") + what)
    if not condition:
        sys.exit(1)


def same_files(folder, files, wanted):
    return all((Path(folder) / file).read_bytes() == wanted[file] for file in files)


def main():
    program = Path(sys.argv[1]).resolve()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    needed = ["config.json", "tokenizer.json", "model.safetensors"]
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs, \
            tempfile.TemporaryDirectory() as shared:
        run([program, "inspect", "o/m"], ours, endpoint)
        found = library(ours, endpoint, "model", "o/m", needed, offline=True)
        check(same_files(found["folder"], needed, MODEL), "huggingface_hub reads the model that qtrain has fetched, offline")
        check(found["refs"] == ["main"], "and its branch")
        library(ours, endpoint, "model", "o/m", needed + ["README.md"], offline=False)
        check(True, "and fetches what qtrain did not need")

        Path(ours, "rows.json").write_text(json.dumps({"model_name_or_path": "o/m", "dataset_name": "o/d",
                                                       "dataset_config": "a", "output_dir": "out", "max_steps": 1}))
        # The tokenizer of this model is empty, so the command ends after it has fetched everything.
        subprocess.run([program, "preprocess", "rows.json"], cwd=ours, capture_output=True, check=False,
                       env=os.environ | {"HF_HUB_CACHE": f"{ours}/hub", "HF_ENDPOINT": endpoint, "HOME": ours})
        found = library(ours, endpoint, "dataset", "o/d", ["README.md", "a/train-0.jsonl"], offline=True)
        check(same_files(found["folder"], ["README.md", "a/train-0.jsonl"], ROWS), "huggingface_hub reads the rows, too")
        check(not Path(found["folder"], "b.jsonl").exists(), "only those of the config")

        library(theirs, endpoint, "model", "o/m", needed, offline=False)
        text = run([program, "inspect", "o/m", "--json"], theirs, "http://127.0.0.1:1", HF_HUB_OFFLINE="1")
        check("llama" in text, "qtrain reads the model that huggingface_hub has fetched, offline")
        text = run([program, "inspect", f"o/m@{COMMIT[:9]}", "--json"], theirs, "http://127.0.0.1:1", HF_HUB_OFFLINE="1")
        check("llama" in text, "and by the beginning of its commit")

        weights = MODEL["model.safetensors"]
        blobs = Path(shared, "hub", "models--o--m", "blobs")
        blobs.mkdir(parents=True)
        part = blobs / (hashlib.sha256(weights).hexdigest() + ".incomplete")
        part.write_bytes(weights[:1000])
        run([program, "inspect", "o/m"], shared, endpoint)
        found = library(shared, endpoint, "model", "o/m", needed, offline=True)
        check(same_files(found["folder"], needed, MODEL) and not part.exists(), "an interrupted download goes on")
    print("qtrain and huggingface_hub share a cache")


if __name__ == "__main__":
    main()
