#!/usr/bin/env python3
"""Writes tests/data/golden/growth/: small files of rows that would take far more memory than their size suggests.

Needs pyarrow; run it from anywhere:
    python tests/data/make_growth_goldens.py
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parent / "golden" / "growth"
LONG = "a" * (300 << 20)


def write_stream(name: str, table: pa.Table):
    options = pa.ipc.IpcWriteOptions(compression="zstd")
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


if __name__ == "__main__":
    main()
