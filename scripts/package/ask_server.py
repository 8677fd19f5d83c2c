"""Sends the request of a `curl URL -d BODY` line to the server whose --json document names its URL, and prints the answer.
Usage: ask_server.py SERVER.json BLOCK"""
import json
import shlex
import sys
import urllib.request

with open(sys.argv[1], encoding="utf-8") as file:
    url = json.load(file)["url"]
with open(sys.argv[2], encoding="utf-8") as file:
    words = shlex.split(file.read())
words = words[words.index("curl") + 1 :]
path = words[0].split("/", 3)[3]
body = words[words.index("-d") + 1]
# The content type that curl sends.
request = urllib.request.Request(f"{url}/{path}", body.encode(), {"Content-Type": "application/x-www-form-urlencoded"})
with urllib.request.urlopen(request, timeout=120) as reply:
    answer = json.load(reply)
print(answer["choices"][0]["message"]["content"])
