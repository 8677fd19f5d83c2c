#!/usr/bin/env python3
"""Lists, shows, compares, packs and unpacks the archives of goldens, tests/**/NAME.tar.xz.

    scripts/goldens.py                        # every archive, with its size and that of its files
    scripts/goldens.py list ARCHIVE           # its files, with their sizes
    scripts/goldens.py show ARCHIVE FILE      # a file; for safetensors, each tensor with type, shape and first values
    scripts/goldens.py diff ARCHIVE [COMMIT]  # the files that differ from the archive's in COMMIT (default: HEAD), and
                                              # the lines that differ in files of text
    scripts/goldens.py check                  # fails if unpacked files differ from their archives
    scripts/goldens.py unpack                 # unpacks all archives, as configuring a build does
    scripts/goldens.py pack ARCHIVE           # packs the files again, after a script has changed them

The files of NAME.tar.xz are unpacked into NAME/ next to it, where git ignores them (see .gitignore); the scripts that make
goldens write to this folder. The same files always give the same archive. Only Python is needed, and git for `diff` and
`pack`.
"""

import argparse
import difflib
import io
import json
import lzma
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Parameters of LZMA for arrays of 4-byte values, for a mixture, and for text; the smallest result is kept.
CODERS = (dict(lc=1, lp=2, pb=2), dict(lc=0, lp=1, pb=1), dict(lc=4, lp=0, pb=0))
TIME = 1767225600  # of every file in an archive: 2026-01-01, so that archives are reproducible
FORMATS = dict(F64="d", F32="f", F16="e", I64="q", I32="i", I16="h", I8="b", U8="B", BOOL="?")


def archives():
    return sorted((ROOT / "tests").rglob("*.tar.xz"))


def title(archive):
    return str(archive.relative_to(ROOT)) if archive.is_relative_to(ROOT) else str(archive)


def entries(data):
    """Returns {name: content, or the target of a link as str} for the bytes of an archive."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:xz") as tar:
        return {m.name: m.linkname if m.issym() else tar.extractfile(m).read() for m in tar if not m.isdir()}


def on_disk(path):
    if path.is_symlink():
        return str(path.readlink())
    return path.read_bytes() if path.is_file() else None


def differences(old, new):
    word = lambda n: "removed" if new.get(n) is None else "added" if n not in old else "changed"
    return [f"{word(n)}: {n}" for n in sorted(old.keys() | new.keys()) if old.get(n) != new.get(n)]


def text_lines(content):
    """The lines of a file of text; none for a link, a file that does not exist, or other contents."""
    try:
        return content.decode().splitlines() if isinstance(content, bytes) and b"\0" not in content else []
    except UnicodeDecodeError:
        return []


def changed_lines(old, new):
    """A unified diff of the files of text that differ."""
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before != after:
            yield from difflib.unified_diff(text_lines(before), text_lines(after), f"a/{name}", f"b/{name}", lineterm="")


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], check=True, capture_output=True).stdout


def ignored_files(archive):
    """The names, relative to the archive's folder, of the files that belong in it."""
    folder = archive.parent / archive.name.removesuffix(".tar.xz")
    listed = git("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--", str(folder)).decode()
    return [str((ROOT / name).relative_to(archive.parent)) for name in listed.split("\0") if name]


def likeness(name):
    """A sort key that puts similar files next to each other, which makes the archive smaller."""
    return Path(name).suffix, Path(name).name, name


def packed(folder, names):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(names, key=likeness):
            content, info = on_disk(folder / name), tarfile.TarInfo(name)
            info.mtime, info.mode = TIME, 0o644
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
            else:
                info.size = len(content)
            tar.addfile(info, None if isinstance(content, str) else io.BytesIO(content))
    compressed = (lzma.compress(out.getvalue(), format=lzma.FORMAT_XZ, filters=[
        dict(id=lzma.FILTER_LZMA2, preset=9 | lzma.PRESET_EXTREME, **coder)]) for coder in CODERS)
    return min(compressed, key=len)


def pack(archive):
    names = ignored_files(archive)
    archive.write_bytes(packed(archive.parent, names))
    print(f"{title(archive)}: {len(names)} files, {archive.stat().st_size:,} bytes")


def unpack(archive):
    for name, content in entries(archive.read_bytes()).items():
        path = archive.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if isinstance(content, str):
            path.symlink_to(content)
        else:
            path.write_bytes(content)


def check(archive):
    """What differs between an archive and the files beside it."""
    held = entries(archive.read_bytes())
    try:
        names = held.keys() | ignored_files(archive)
    except (OSError, ValueError, subprocess.CalledProcessError):  # not in a repository
        names = held.keys()
    return differences(held, {name: on_disk(archive.parent / name) for name in names})


def in_archive(archive, commit):
    try:
        return entries(git("show", f"{commit}:{title(archive)}"))
    except subprocess.CalledProcessError:
        return {}


def size_of(content):
    return 0 if isinstance(content, str) else len(content)


def tensors(content):
    """The tensors of a safetensors file, one per line, with type, shape and first values."""
    length = struct.unpack_from("<Q", content)[0]
    for name, tensor in json.loads(content[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in tensor["data_offsets"])
        code = FORMATS.get(tensor["dtype"], "B")
        count = min(4, (end - begin) // struct.calcsize(code))
        values = struct.unpack_from(f"<{count}{code}", content, begin)
        yield f"{name} {tensor['dtype']} {tensor['shape']}: {' '.join(f'{v:.7g}' for v in values)}"


def show(content):
    if isinstance(content, str):
        print("link to", content)
    elif content[8:10] == b'{"':
        print("\n".join(tensors(content)))
    else:
        sys.stdout.buffer.write(content)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", nargs="?", default="archives",
                        choices=("archives", "list", "show", "diff", "check", "unpack", "pack"))
    parser.add_argument("archive", nargs="?", type=Path)
    parser.add_argument("what", nargs="?", help="the file for `show`, the commit for `diff`")
    args = parser.parse_args()
    if args.action in ("list", "show", "diff", "pack") and not args.archive:
        parser.error(f"{args.action} needs an archive")
    archive = args.archive and args.archive.resolve()
    if args.action == "archives":
        for a in archives():
            held = entries(a.read_bytes()).values()
            print(f"{a.stat().st_size:9,} {sum(map(size_of, held)):10,} {len(held):4} files  {title(a)}")
    elif args.action == "list":
        for name, content in entries(archive.read_bytes()).items():
            print(f"{size_of(content):9,} {name}" + (f" -> {content}" if isinstance(content, str) else ""))
    elif args.action == "show":
        show(entries(archive.read_bytes())[args.what])
    elif args.action == "diff":
        old, new = in_archive(archive, args.what or "HEAD"), entries(archive.read_bytes())
        print("\n".join([*differences(old, new), *changed_lines(old, new)]))
    elif args.action == "check":
        wrong = [f"{title(a)}: {why}" for a in archives() for why in check(a)]
        print("\n".join(wrong) or f"{len(archives())} archives match the files next to them")
        return 1 if wrong else 0
    elif args.action == "unpack":
        for a in archives():
            unpack(a)
    else:
        pack(archive)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
