#!/usr/bin/env python3
"""Makes chat rows of real text on any Debian machine: the descriptions of its packages.

    python package_rows.py ROWS OUTPUT.jsonl
"""

import json
import random
import subprocess
import sys

QUESTIONS = ["What is the package {}?", "Describe {} in Debian.", "Tell me about {} please.", "Why would I install {}?"]


def packages():
    text = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    for block in text.split("\n\n"):
        fields, key = {}, None
        for line in block.split("\n"):
            if line.startswith(" ") and key:
                fields[key] += "\n" + line[1:]
            elif ": " in line:
                key, value = line.split(": ", 1)
                fields[key] = value
        if "Package" in fields:
            yield fields


def main():
    rows, output = int(sys.argv[1]), sys.argv[2]
    known = list(packages())
    rng = random.Random(1)
    with open(output, "w") as out:
        for i in range(rows):
            fields = known[i % len(known)]
            about = [k for k in fields if k.startswith("Description")][:1] + ["Section", "Depends", "Homepage"]
            answer = "\n".join(f"{k}: {fields[k]}" for k in about if k in fields)
            messages = [("system", "You are a helpful assistant."),
                        ("user", rng.choice(QUESTIONS).format(fields["Package"])), ("assistant", answer)]
            row = {"messages": [{"role": role, "content": text} for role, text in messages]}
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
