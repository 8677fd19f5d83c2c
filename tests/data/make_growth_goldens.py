#!/usr/bin/env python3
"""Writes tests/data/golden/growth/: small files of rows that would take far more memory or time than their size
suggests.

Needs pyarrow; run it from anywhere:
    python tests/data/make_growth_goldens.py
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parent / "golden" / "growth"
LONG = "a" * (300 << 20)


def write_stream(name: str, table: pa.Table, compression: str | None = "zstd"):
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(ROOT / name, table.schema, options=options) as writer:
        writer.write_table(table)


def main():
    ROOT.mkdir(parents=True, exist_ok=True)
    one = pa.table({"text": [LONG]})
    pq.write_table(one, ROOT / "page.parquet", compression="zstd", use_dictionary=False, write_statistics=False)
    pq.write_table(one, ROOT / "dictionary_page.parquet", compression="zstd", write_statistics=False)
    rows = 1_000_000
    wide = pa.table({f"c{i}": pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int8()), ["x"])
                     for i in range(100)})
    pq.write_table(wide, ROOT / "columns.parquet", compression="zstd", row_group_size=rows, write_statistics=False)
    write_stream("buffer.arrow", one)
    write_stream("dictionary.arrow", pa.table({"text": pa.array([LONG]).dictionary_encode()}))
    write_row_groups("row_groups.parquet")
    write_shared_values()
    write_shared_prompt()
    write_wide_rows()
    write_overlaps()
    write_many_rows("many_rows.parquet")


def write_row_groups(name: str):
    """Each row group may become large, but not all of them together."""
    part = pa.table({"text": ["a" * (90 << 20)]})
    with pq.ParquetWriter(ROOT / name, part.schema, compression="zstd", use_dictionary=False,
                          write_statistics=False) as writer:
        for _ in range(4):
            writer.write_table(part)


def write_shared_values():
    """Rows that share one long text: together 10 GB."""
    text, rows = "a" * (100 << 10), 100_000
    indices = pa.array(np.zeros(rows, np.int8))
    shared = pa.table({"text": pa.DictionaryArray.from_arrays(indices, [text])})
    pq.write_table(shared, ROOT / "dictionary_uses.parquet", compression="none", write_statistics=False)
    write_stream("dictionary_uses.arrow", shared, None)
    lists = pa.DictionaryArray.from_arrays(indices, pa.array([[{"content": text}]]))
    write_stream("dictionary_of_lists.arrow", pa.table({"messages": lists}), None)
    views = np.zeros((rows, 4), np.uint32)
    views[:, :2] = len(text), int.from_bytes(b"aaaa", "little")
    buffers = [None, pa.py_buffer(views.tobytes()), pa.py_buffer(text.encode())]
    write_stream("views.arrow", pa.table({"text": pa.Array.from_buffers(pa.string_view(), rows, buffers)}), None)


def write_shared_prompt():
    """Rows as ordinary data sets have them: each repeats a system prompt of 8 kB, which both formats store once."""
    rows = 50_000
    prompts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), ["You are helpful. " * 480])
    table = pa.table({"system": prompts, "text": pa.DictionaryArray.from_arrays(
        pa.array(np.arange(rows) % 7, pa.int8()), [f"text {i}" for i in range(7)])})
    pq.write_table(table, ROOT / "shared_prompt.parquet", compression="zstd", row_group_size=10_000,
                   write_statistics=False)
    options = pa.ipc.IpcWriteOptions(compression=None)
    with pa.ipc.new_file(ROOT / "shared_prompt.arrow", table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=10_000)


def write_wide_rows():
    """One row whose items share one text."""
    text, items = "a" * (100 << 10), 4000
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(items, np.int8)), [text])
    table = pa.table({"text": pa.ListArray.from_arrays(pa.array([0, items], pa.int32()), column)})
    write_stream("uses_in_one_row.arrow", table, None)
    plain = pa.table({"text": pa.array([[text] * items])})
    pq.write_table(plain, ROOT / "uses_in_one_row.parquet", compression="none", write_statistics=False)


def write_overlaps():
    """Offsets that return to 0 between rows, which are null there, so that all other rows have the whole text."""
    size, rows = 100 << 10, 4001
    offsets = np.zeros(rows + 1, np.int32)
    offsets[1::2] = size
    valid = np.packbits(np.arange(rows) % 2 == 0, bitorder="little")
    buffers = [pa.py_buffer(b.tobytes()) for b in (valid, offsets)]
    characters = pa.py_buffer(b"a" * size)
    write_stream("overlaps.arrow", pa.table({"text": pa.Array.from_buffers(pa.string(), rows, [*buffers, characters])}),
                 None)
    items = pa.array(np.zeros(size, np.int8))
    lists = pa.Array.from_buffers(pa.list_(pa.int8()), rows, buffers, children=[items])
    write_stream("overlapping_lists.arrow", pa.table({"input_ids": lists}), None)


def write_many_rows(name: str):
    """20 million rows in 400 kB, most of which are unused zeros before the footer."""
    rows = 20_000_000
    table = pa.table({"text": pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), ["a"])})
    pq.write_table(table, ROOT / name, compression="zstd", row_group_size=rows // 4, write_statistics=False)
    written = (ROOT / name).read_bytes()
    footer = len(written) - 8 - int.from_bytes(written[-8:-4], "little")
    (ROOT / name).write_bytes(written[:footer] + bytes(400 << 10) + written[footer:])


if __name__ == "__main__":
    main()
