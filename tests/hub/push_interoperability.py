#!/usr/bin/env python3
"""Checks that qtrain push asks a hub for what huggingface_hub asks for, and that its library reads what was pushed.

Both push the same folder to a hub on this machine, which records all requests: a new repository, one that has some of
the files, and a branch. Needs huggingface_hub (pip install huggingface_hub) and a built program; it is not a part of the
ordinary tests. Usage: push_interoperability.py PROGRAM
"""
import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from answering_hub import AnsweringHub, git_sha1

TOKEN = "hf_interoperability"
CHUNK = 4000


class Repository:
    def __init__(self, files):
        self.files, self.large, self.commits = dict(files), set(), 1

    @property
    def sha(self):
        return hashlib.sha1(repr((self.commits, sorted(self.files))).encode()).hexdigest()


class Hub(AnsweringHub):
    def handle_request(self):
        url = urlsplit(self.path)
        path = unquote(url.path)
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        state = self.server
        is_storage = path.startswith(("/storage/", "/join/"))
        state.seen.append((self.command, path, body, self.headers.get("Authorization"), dict(self.headers)))
        if is_storage:
            return self.storage(path, body)
        if path == "/api/whoami-v2":
            return self.answer(200, {"type": "user", "name": "me"})
        if path == "/api/validate-yaml":
            return self.answer(200, {"errors": [], "warnings": []})
        if path == "/api/repos/create":
            wanted = json.loads(body)
            name = f"{wanted['organization']}/{wanted['name']}"
            if (name, "main") in state.repositories:
                return self.answer(409, {"error": "exists", "url": f"{state.url}/{name}"})
            state.repositories[name, "main"] = Repository({".gitattributes": b"*.safetensors filter=lfs\n"})
            state.visibility[name] = wanted.get("visibility")
            return self.answer(200, {"url": f"{state.url}/{name}", "name": name, "id": "1"})
        if path.endswith(".git/info/lfs/objects/batch"):
            return self.batch(json.loads(body))
        if path == "/verify":
            return self.answer(200 if json.loads(body)["oid"] in state.large else 404)
        if path.startswith("/api/models/"):
            return self.model(path[len("/api/models/"):], body, parse_qs(url.query))
        if "/resolve/" in path:
            return self.resolve(path)
        return self.answer(404)

    do_GET = do_HEAD = do_POST = do_PUT = handle_request

    def model(self, path, body, query):
        state, parts = self.server, path.split("/", 3)
        name, action, rest = "/".join(parts[:2]), parts[2] if len(parts) > 2 else "", parts[3] if len(parts) > 3 else "main"
        repository = state.repositories.get((name, rest))
        known = (name, "main") in state.repositories
        if action == "branch":
            if repository:
                return self.answer(409, {"error": "exists"})
            main = state.repositories[name, "main"]
            state.repositories[name, rest] = copied = Repository(main.files)
            copied.large = set(main.large)
            return self.answer(200)
        if action == "revision" or not action:
            if not repository:
                return self.answer(404, {"error": "no"}, [("X-Error-Code", "RevisionNotFound" if known else "RepoNotFound")])
            siblings = []
            for file, contents in repository.files.items():
                entry = {"rfilename": file, "size": len(contents), "blobId": git_sha1(contents)}
                if file in repository.large:
                    entry["lfs"] = {"sha256": hashlib.sha256(contents).hexdigest(), "size": len(contents), "pointerSize": 130}
                siblings.append(entry)
            return self.answer(200, {"id": name, "_id": "1", "modelId": name, "sha": repository.sha, "siblings": siblings,
                                     "private": state.visibility.get(name) == "private", "tags": [], "downloads": 0, "likes": 0})
        if action == "tree":
            repository = next(r for (repo, branch), r in state.repositories.items()
                              if repo == name and rest.split("/")[0] in (branch, r.sha))
            entries = []
            for file, contents in repository.files.items():
                entry = {"type": "file", "path": file, "size": len(contents), "oid": git_sha1(contents)}
                if file in repository.large:
                    entry["lfs"] = {"oid": hashlib.sha256(contents).hexdigest(), "size": len(contents), "pointerSize": 130}
                entries.append(entry)
            return self.answer(200, entries)
        if action == "preupload":
            files = []
            for file in json.loads(body)["files"]:
                old = repository.files.get(file["path"])
                large = file["path"].endswith(".safetensors")
                oid = None if old is None else hashlib.sha256(old).hexdigest() if large else git_sha1(old)
                files.append({"path": file["path"], "uploadMode": "lfs" if large else "regular", "shouldIgnore": False,
                              "oid": oid})
            return self.answer(200, {"files": files})
        if action == "commit":
            for line in body.splitlines():
                entry = json.loads(line)
                value = entry["value"]
                if entry["key"] == "header" and value.get("parentCommit", repository.sha) != repository.sha:
                    return self.answer(412, {"error": "A commit has happened since."})
                if entry["key"] == "file":
                    repository.files[value["path"]] = base64.b64decode(value["content"])
                if entry["key"] == "lfsFile":
                    repository.files[value["path"]] = state.large[value["oid"]]
                    repository.large.add(value["path"])
            repository.commits += 1
            return self.answer(200, {"success": True, "commitOid": repository.sha, "commitUrl": f"{state.url}/{name}/commit/{repository.sha}",
                                     "hookOutput": ""})
        return self.answer(404)

    def batch(self, wanted):
        state = self.server
        objects = []
        for one in wanted["objects"]:
            entry = {"oid": one["oid"], "size": one["size"]}
            if one["oid"] not in state.large:
                number = len(state.uploads)
                state.uploads.append((one["oid"], {}))
                upload = {"href": f"{state.storage}/storage/{number}/1"}
                if one["size"] > CHUNK:
                    count = -(-one["size"] // CHUNK)
                    upload = {"href": f"{state.storage}/join/{number}",
                              "header": {"chunk_size": str(CHUNK)} | {f"{i:05}": f"{state.storage}/storage/{number}/{i}"
                                                                      for i in range(1, count + 1)}}
                entry["actions"] = {"upload": upload, "verify": {"href": f"{state.url}/verify"}}
            objects.append(entry)
        self.answer(200, {"objects": objects, "transfer": "multipart"})

    def storage(self, path, body):
        state = self.server
        time.sleep(state.delay)
        _, action, number, *part = path.split("/")
        oid, parts = state.uploads[int(number)]
        if action == "storage":
            parts[int(part[0])] = body
            if hashlib.sha256(body).hexdigest() == oid:
                state.large[oid] = body
            return self.answer(200, b"", [("ETag", f'"{hashlib.md5(body).hexdigest()}"')])
        wanted = json.loads(body)
        for entry in wanted["parts"]:
            if entry["etag"].strip('"') != hashlib.md5(parts[entry["partNumber"]]).hexdigest():
                return self.answer(400)
        whole = b"".join(parts[i] for i in sorted(parts))
        if hashlib.sha256(whole).hexdigest() != oid or wanted["oid"] != oid:
            return self.answer(400)
        state.large[oid] = whole
        self.answer(200, {"success": True})

    def resolve(self, path):
        name, rest = path[1:].split("/resolve/", 1)
        revision, file = rest.split("/", 1)
        for (repo, _), repository in self.server.repositories.items():
            if repo == name and (revision in ("main", repository.sha)) and file in repository.files:
                contents = repository.files[file]
                etag = hashlib.sha256(contents).hexdigest() if file in repository.large else git_sha1(contents)
                return self.answer(200, contents, [("ETag", f'"{etag}"'), ("X-Repo-Commit", repository.sha),
                                                   ("X-Linked-Size", str(len(contents))), ("X-Linked-Etag", f'"{etag}"')])
        self.answer(404, {}, [("X-Error-Code", "EntryNotFound")])


def start_hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    port = server.server_address[1]
    server.url, server.storage = f"http://127.0.0.1:{port}", f"http://localhost:{port}"
    server.seen, server.repositories, server.large, server.uploads, server.visibility, server.delay = [], {}, {}, [], {}, 0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


LIBRARY = """
import sys
from huggingface_hub import HfApi
folder, branch = sys.argv[1:3]
api = HfApi()
api.create_repo("o/n", private=True, exist_ok=True)
if branch != "main":
    api.create_branch("o/n", branch=branch, exist_ok=True)
api.upload_folder(repo_id="o/n", folder_path=folder, revision=branch, commit_message="message")
"""
READER = """
import sys
from huggingface_hub import snapshot_download
print(snapshot_download("o/n"))
"""


def environment(home, hub):
    return os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": f"{home}/hf", "HOME": home, "HF_TOKEN": TOKEN,
                         "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "XDG_CACHE_HOME": f"{home}/cache"}


def run(words, home, hub):
    result = subprocess.run(words, env=environment(home, hub), text=True, capture_output=True, cwd=home, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{result.stdout}{result.stderr}")
    return result.stdout


def normalized(line):
    entry = json.loads(line)
    if entry["key"] == "header":
        entry["value"].pop("parentCommit", None)  # only qtrain says it
    return json.dumps(entry, sort_keys=True)


def uploads_of(seen):
    """What a push asks for, apart from looks at the repository: in order, except for parts and lines of a commit."""
    found = {"writes": [], "storage": [], "commit": [], "batch": [], "offered": [], "created": []}
    for method, path, body, token, headers in seen:
        if method in ("GET", "HEAD"):
            continue
        if path.startswith(("/storage/", "/join/")):
            if token:
                sys.exit(f"a token was sent to the storage: {path}")
            if path.startswith("/storage/"):
                found["storage"].append(hashlib.sha256(body).hexdigest())
            else:
                found["storage"].append(json.dumps(json.loads(body), sort_keys=True))
            continue
        if token != f"Bearer {TOKEN}":
            sys.exit(f"no token was sent to {path}")
        found["writes"].append(f"{method} {path}")
        if "/commit/" in path:
            found["commit"] += [normalized(line) for line in body.splitlines()]
        if path.endswith("/batch"):
            wanted = json.loads(body)
            wanted["objects"].sort(key=lambda one: one["oid"])
            found["batch"].append(wanted)
        if "/preupload/" in path:
            found["offered"].append(sorted(json.loads(body)["files"], key=lambda one: one["path"]))
        if path.endswith("/create"):
            found["created"].append(json.loads(body))
    found["storage"].sort()
    found["commit"].sort()
    found["writes"] = list(dict.fromkeys(found["writes"]))  # the library checks the card several times
    return found


def check(condition, what):
    print(("ok      " if condition else "failed  ") + what)
    if not condition:
        sys.exit(1)


def compare(ours, theirs, what, created, only_changed):
    a, b = uploads_of(ours), uploads_of(theirs)
    if not created:  # the library asks to create what is there
        b["writes"] = [w for w in b["writes"] if not w.endswith("/repos/create")]
        b["created"] = []
    keys = ["created", "batch", "storage", "commit"]
    if only_changed:  # the library offers all files, and finds out from the answer which differ
        for one in b["batch"]:
            known = {o["oid"] for wanted in a["batch"] for o in wanted["objects"]}
            one["objects"] = [o for o in one["objects"] if o["oid"] in known]
        b["batch"] = [one for one in b["batch"] if one["objects"]]
        b["writes"] = [w for w in b["writes"] if a["batch"] or (not w.endswith("/batch") and w != "POST /verify")]
    else:
        keys += ["offered"]
    for key in keys:
        if a[key] != b[key]:
            print(json.dumps({"qtrain": a[key], "huggingface_hub": b[key]}, indent=1)[:4000])
        check(a[key] == b[key], f"{what}: {key}")
    if sorted(a["writes"]) != sorted(b["writes"]):
        print(a["writes"], b["writes"])
    check(sorted(a["writes"]) == sorted(b["writes"]), f"{what}: the same requests")


def push_both(program, home, folder, hubs, branch):
    ours, theirs = hubs
    for hub in hubs:
        hub.seen.clear()
    words = [program, "push", folder, "o/n", "--private", "--message", "message", "--revision", branch]
    run(words, home, ours)
    run([sys.executable, "-c", LIBRARY, folder, branch], home, theirs)
    for key, repository in theirs.repositories.items():
        check(repository.files == ours.repositories[key].files, f"the same files in {key}")
    return ours.seen, theirs.seen


def parts_of(hub):
    return [path for _, path, *_ in hub.seen if path.startswith("/storage/")]


def interrupt(program, home, folder, hub):
    """Interrupts a push between parts, and pushes again."""
    contents = bytes(i * 11 % 253 for i in range(10 * CHUNK))
    (folder / "model-00002-of-00002.safetensors").write_bytes(contents)
    hub.seen.clear()
    hub.delay = 0.3
    words = [program, "push", folder, "o/n"]
    pushing = subprocess.Popen(words, env=environment(home, hub), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while len(parts_of(hub)) < 4:
        time.sleep(0.02)
    pushing.send_signal(signal.SIGINT)
    _, said = pushing.communicate()
    check(pushing.returncode == 75, f"Ctrl-C ends a push with code 75 ({said.strip().splitlines()[-1]})")
    time.sleep(0.5)
    sent = len(parts_of(hub))
    hub.delay = 0
    run(words, home, hub)
    check(len(set(parts_of(hub))) == 10 and len(parts_of(hub)) - sent in (6, 7),
          f"the next one sends the other parts ({len(parts_of(hub)) - sent} of 10)")
    check(hub.repositories["o/n", "main"].files["model-00002-of-00002.safetensors"] == contents, "all bytes arrive")


def main():
    program = Path(sys.argv[1]).resolve()
    hubs = start_hub(), start_hub()
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home, "model")
        folder.mkdir()
        files = {"config.json": b'{"model_type": "llama"}', "README.md": "---\nlicense: mit\n---\n# é\n".encode(),
                 "tokenizer.json": bytes(range(1, 200)) * 20, "chat_template.jinja": b"",
                 "model-00001-of-00002.safetensors": bytes(i * 7 % 251 for i in range(3 * CHUNK + 5)),
                 "model-00002-of-00002.safetensors": bytes(i * 5 % 251 for i in range(700)),
                 "model.safetensors.index.json": json.dumps({"weight_map": {
                     "a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}).encode()}
        for name, contents in files.items():
            (folder / name).write_bytes(contents)
        compare(*push_both(program, home, folder, hubs, "main"), "a new repository", created=True, only_changed=False)
        (folder / "README.md").write_bytes(b"# changed\n")
        compare(*push_both(program, home, folder, hubs, "main"), "a changed card", created=False, only_changed=True)
        (folder / "model-00002-of-00002.safetensors").write_bytes(b"x" * 900)
        compare(*push_both(program, home, folder, hubs, "refs-dev"), "a branch", created=False, only_changed=True)
        hubs[0].seen.clear()
        run([program, "push", folder, "o/n@refs-dev"], home, hubs[0])
        check(all(method == "GET" or path == "/api/validate-yaml" for method, path, *_ in hubs[0].seen),
              "what is there is not pushed again")
        snapshot = Path(run([sys.executable, "-c", READER], home, hubs[0]).strip())
        check((snapshot / "model-00001-of-00002.safetensors").read_bytes() == files["model-00001-of-00002.safetensors"],
              "huggingface_hub reads what was pushed")
        interrupt(program, home, folder, hubs[0])
    print("qtrain and huggingface_hub push in the same way")


if __name__ == "__main__":
    main()
