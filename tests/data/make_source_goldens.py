#!/usr/bin/env python3
"""Writes tests/data/golden/sources/: files of rows as datasets, pyarrow and pandas write them, and what these read back.

Needs datasets, pyarrow, polars and pandas; run it from anywhere:
    python tests/data/make_source_goldens.py
"""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset, DatasetDict, Features, Json, List, Value, disable_progress_bars, interleave_datasets
from datasets import load_from_disk

ROOT = Path(__file__).parent / "golden" / "sources"
UNREAD = {"raw", "when", "price", "view_bytes", "both", "pairs"}  # columns of types that rows omit

CSV_FILES = {
    "types.csv": 'text,whole,with_gap,number,flag,flag_gap,nothing,large\n'
                 'a,1,1,1.5,True,true,,18446744073709551615\n'
                 '"b, c",-2,,2,False,,NA,1\n'
                 'null,+3,3,-1e3,TRUE,FALSE,None,2\n',
    "quotes.csv": 'prompt,completion\n"line one\nline two","say ""hi"""\n"x"y,a"b"c\n"",z\n "q", r\n\n   \n'
                  'last,"end"',
    "crlf.csv": '\ufeffa,b\r\n1,"x\r\ny"\r\n2,z\r\n',
    "cr.csv": 'a,b\r1,x\r2,y\r',
    "short.csv": 'a,b,c\n1,2,3\n4\n5,6\n',
    "names.csv": 'a,a,,a\n1,2,3,4\n',
    "tabs.tsv": 'instruction\toutput\nadd, please\t"3\t4"\n b \tc\n',
    "words.csv": 'text\nNone\nnan\nNAN\n N/A\n<NA>\nna\nNull\nTrue\n1\n',
    "spaces.csv": 'a,b\n 1 , 2.5\n2 ,3\n',
}


def rows_of(table: pa.Table) -> list[dict]:
    """Python's view of the rows without the columns that are not read, JSON text decoded."""
    keep = [name for name in table.column_names if name not in UNREAD]
    return table.select(keep).to_pylist()


def nasty_table(count: int) -> pa.Table:
    rng = random.Random(11)
    words = ["fox", "naïve", "東京", "🦊", "", "a much longer piece of text, beyond twelve bytes", "line\nend", "\u2028"]
    say = lambda: " ".join(rng.choice(words) for _ in range(rng.randint(0, 4)))
    maybe = lambda value, p=0.25: None if rng.random() < p else value

    def message():
        calls = maybe([{"name": say(), "args": maybe([rng.randint(0, 9) for _ in range(rng.randint(0, 3))])}
                       for _ in range(rng.randint(0, 2))], 0.5)
        return {"role": rng.choice(["user", "assistant"]), "content": maybe(say(), 0.1), "tool_calls": calls}

    messages = pa.list_(pa.struct([
        ("role", pa.string()), ("content", pa.string()),
        ("tool_calls", pa.list_(pa.struct([("name", pa.string()), ("args", pa.list_(pa.int64()))])))]))
    make = {
        "id": (pa.int64(), lambda i: i * 1_000_003 - 7_000_000),
        "tiny": (pa.int8(), lambda i: maybe(i % 256 - 128)),
        "u32": (pa.uint32(), lambda i: 4294967295 - i),
        "u64": (pa.uint64(), lambda i: 18446744073709551615 - i),
        "f32": (pa.float32(), lambda i: maybe(i / 8)),
        "f64": (pa.float64(), lambda i: i / 10),
        "flag": (pa.bool_(), lambda i: maybe(i % 3 == 0)),
        "runs": (pa.int32(), lambda i: i // 40),
        "text": (pa.string(), lambda i: maybe(say())),
        "large": (pa.large_string(), lambda i: f"prefix {i // 10} " + say()),
        "messages": (messages, lambda i: maybe([message() for _ in range(rng.randint(0, 3))], 0.1)),
        "input_ids": (pa.list_(pa.int32()), lambda i: [rng.randint(0, 150_000) for _ in range(rng.randint(0, 5))]),
        "mask": (pa.large_list(pa.int8()), lambda i: maybe([i % 2] * (i % 4))),
        "deep": (pa.list_(pa.list_(pa.string())), lambda i: maybe(
            [maybe([maybe(say()) for _ in range(rng.randint(0, 2))]) for _ in range(rng.randint(0, 3))])),
        "triple": (pa.list_(pa.int16(), 3), lambda i: [i, None, -i]),
        "inner": (pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))]),
                  lambda i: maybe({"a": i, "b": maybe({"c": maybe(say())})})),
        "nothing": (pa.null(), lambda i: None),
        "raw": (pa.binary(), lambda i: b"\xff\x00"),
        "when": (pa.timestamp("us"), lambda i: i),
        "tag": (pa.string(), lambda i: maybe(f"tag {i % 3}")),
    }
    names = list(make)
    columns = [pa.array([make[n][1](i) for i in range(count)], type=make[n][0]) for n in names]
    return pa.table(columns, names=names)


def arrow_files(folder: Path) -> dict[str, pa.Table]:
    table = nasty_table(40)
    halves = [table.slice(0, 24), table.slice(24)]
    encoded = table.set_column(table.column_names.index("tag"), "tag", table["tag"].combine_chunks().dictionary_encode())
    views = pa.table({
        "text": table["text"].cast(pa.string_view()),
        "view_bytes": pa.array([b"x"] * 40, type=pa.binary_view()),
        "half": pa.array(np.arange(40, dtype=np.float16) / 4),
        "price": pa.array(list(range(40))).cast(pa.decimal128(25, 2)),
        "both": pa.UnionArray.from_sparse(pa.array([0] * 40, type=pa.int8()), [pa.array(range(40))]),
        "pairs": pa.array([[("k", i)] for i in range(40)], type=pa.map_(pa.string(), pa.int64())),
        "last": table["id"],
    })
    out = {}

    def write(name, data, batches, writer, codec=None):
        options = pa.ipc.IpcWriteOptions(compression=codec)
        with writer(str(folder / name), data.schema, options=options) as stream:
            for batch in batches:
                stream.write_table(batch)
        out[name] = data

    write("stream.arrow", table, halves, pa.RecordBatchStreamWriter)
    write("file.arrow", table, halves, pa.RecordBatchFileWriter)
    write("zstd.arrow", table, halves, pa.RecordBatchStreamWriter, "zstd")
    write("lz4.arrow", table, halves, pa.RecordBatchFileWriter, "lz4")
    write("dictionary.arrow", encoded, [encoded.slice(0, 24), encoded.slice(24)], pa.RecordBatchStreamWriter)
    write("views.arrow", views, [views.slice(0, 13), views.slice(13)], pa.RecordBatchStreamWriter)
    return out


def delta_files(folder: Path) -> dict[str, pa.Table]:
    """Dictionaries that grow from one record batch to the next, and one that is replaced, which a file cannot have."""
    tag = lambda words, ids: pa.DictionaryArray.from_arrays(pa.array(ids, pa.int8()), pa.array(words))
    lists = lambda values: pa.ListArray.from_arrays([0, *range(1, len(values) + 1)], values)
    words = ["a", "b", "a longer word than a view holds", "d", "e"]
    grown = [(words[:2], [0, 1, None, 1]), (words[:3], [2, 0, 1]), (words[:3], [1, 2]), (words, [4, 3, 2, 1, 0, None])]
    batches = [pa.record_batch({"tag": tag(w, ids), "tags": lists(tag(w, ids)), "id": pa.array(range(len(ids)))}) for w, ids in grown]
    other = pa.record_batch({"tag": tag(["x"], [0]), "tags": lists(tag(["y"], [0])), "id": pa.array([7])})
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    kinds = {"deltas.arrow": (pa.RecordBatchStreamWriter, batches), "deltas_file.arrow": (pa.RecordBatchFileWriter, batches),
             "deltas_replaced.arrow": (pa.RecordBatchStreamWriter, [*batches[:3], other, batches[0]])}
    out = {}
    for name, (writer, parts) in kinds.items():
        with writer(str(folder / name), parts[0].schema, options=options) as stream:
            for part in parts:
                stream.write_batch(part)
        with pa.ipc.open_file(str(folder / name)) if "file" in name else pa.ipc.open_stream(str(folder / name)) as file:
            out[name] = file.read_all()
    messages = list(pa.ipc.MessageReader.open_stream(str(folder / "deltas.arrow")))
    first = next(i for i, m in enumerate(messages) if m.type == "record batch")
    (folder / "deltas_headless.arrow").write_bytes(
        b"".join(m.serialize().to_pybytes() for m in [messages[0], *messages[first:]]))
    return out


def polars_files(folder: Path) -> dict[str, pa.Table]:
    """Files whose schema stands in the footer alone, as polars writes them and pyarrow reads them."""
    texts = ["a", "short", "a text of more than twelve bytes", None]
    frame = pl.DataFrame({"text": texts * 5, "id": list(range(20)),
                          "messages": [[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]] * 20,
                          "tag": pl.Series(["x", "y"] * 10, dtype=pl.Categorical)})
    old = {"compat_level": pl.CompatLevel.oldest()}
    kinds = {"polars.arrow": {}, "polars_old.arrow": old, "polars_lz4.arrow": {"compression": "lz4"},
             "polars_zstd.feather": {"compression": "zstd"}, "polars_batches.ipc": {"record_batch_size": 6} | old}
    out = {}
    for name, options in kinds.items():
        frame.write_ipc(folder / name, **options)
        with pa.ipc.open_file(str(folder / name)) as file:
            out[name] = file.read_all()
    return out


def parquet_files(folder: Path) -> dict[str, pa.Table]:
    table, long = nasty_table(40), nasty_table(400).select(["id", "tiny", "u32", "f32", "f64", "flag", "runs", "large"])
    variants = {
        "plain.parquet": (table, {"compression": "none", "use_dictionary": False}),
        "snappy.parquet": (table, {"compression": "snappy"}),
        "zstd_v2.parquet": (table, {"compression": "zstd", "data_page_version": "2.0"}),
        "gzip_groups.parquet": (table, {"compression": "gzip", "row_group_size": 17}),
        "lz4_pages.parquet": (table, {"compression": "lz4", "data_page_size": 100, "write_batch_size": 5}),
        "old_lists.parquet": (table, {"compression": "zstd", "version": "1.0", "use_compliant_nested_type": False}),
        "delta.parquet": (long, {"compression": "zstd", "use_dictionary": False, "column_encoding": {
            "id": "DELTA_BINARY_PACKED", "tiny": "DELTA_BINARY_PACKED", "u32": "DELTA_BINARY_PACKED",
            "large": "DELTA_BYTE_ARRAY", "f64": "BYTE_STREAM_SPLIT", "f32": "BYTE_STREAM_SPLIT", "flag": "RLE"}}),
        "delta_length_v2.parquet": (long, {"compression": "snappy", "use_dictionary": False, "data_page_version": "2.0",
                                           "column_encoding": {"large": "DELTA_LENGTH_BYTE_ARRAY"}}),
        "dictionary_pages.parquet": (long, {"compression": "none", "data_page_size": 64, "write_batch_size": 32}),
    }
    for name, (data, options) in variants.items():
        pq.write_table(data, folder / name, **options)
    pq.write_table(table.select(["text"]).slice(0, 0), folder / "empty.parquet")
    rows = pa.table({"text": ["a" * 20_000 + str(i) for i in range(3)], "raw": pa.array([b"x"] * 3, type=pa.binary()),
                     "when": pa.array([1, 2, 3], type=pa.timestamp("us"))})
    pq.write_table(rows, folder / "long_rows.parquet", compression="zstd")
    pq.write_table(table.select(["id", "text"]), folder / "brotli.parquet", compression="brotli")
    return {name: data for name, (data, _) in variants.items()}


def saved_folders(folder: Path) -> dict[str, list[dict]]:
    """Folders of save_to_disk, to_parquet, and what load_from_disk reads."""
    rows = [{"messages": [{"role": "user", "content": f"q{i}"}, {"role": "assistant", "content": f"a {i}\n" * (i % 3)}],
             "n": i} for i in range(25)]
    Dataset.from_list(rows).save_to_disk(folder / "saved", num_shards=2)
    chosen = Dataset.from_list(rows).select([4, 2, 7])  # indices, which become rows when saved
    parts = DatasetDict({"train": chosen, "test": Dataset.from_list(rows[:2]), "validation": Dataset.from_list(rows[5:6])})
    parts.save_to_disk(folder / "parts")
    features = Features({"prompt": Value("string"), "tools": List(Json())})
    tools = Dataset.from_list([{"prompt": "p", "tools": [{"a": 1}, {"b": ["x", None]}]}, {"prompt": "q", "tools": None},
                               {"prompt": "r", "tools": []}], features=features)
    tools.save_to_disk(folder / "json_feature")
    tools.to_parquet(folder / "json_feature.parquet")
    return {
        "saved": load_from_disk(folder / "saved").to_list(),
        "parts": load_from_disk(folder / "parts")["train"].to_list(),
        "parts/validation": load_from_disk(folder / "parts")["validation"].to_list(),
        "json_feature": list(load_from_disk(folder / "json_feature")),
        "json_feature.parquet": list(load_from_disk(folder / "json_feature")),
    }


def csv_files(folder: Path) -> dict[str, list[dict]]:
    """Every field is text here, and an empty one is null: rows have no use for numbers."""
    out = {}
    for name, text in CSV_FILES.items():
        (folder / name).write_bytes(text.encode())
        options = {"sep": "\t"} if name.endswith(".tsv") else {}
        rows = pd.read_csv(folder / name, dtype=str, keep_default_na=False, na_values=[""], **options)
        out[name] = [{key: None if pd.isna(value) else value for key, value in row.items()}
                     for row in rows.to_dict("records")]
    return out


def mixtures() -> list[dict]:
    """Rows [source, row] in the order of interleave_datasets."""
    out = []
    for sizes in ([3, 7, 5], [40, 400], [1500, 900, 700]):
        sources = [Dataset.from_dict({"at": [[s, r] for r in range(n)]}) for s, n in enumerate(sizes)]
        for stop in ("first_exhausted", "all_exhausted", "all_exhausted_without_replacement"):
            for seed, shares in ((None, None), (42, True), (7, True)):
                weights = [0.5 / len(sizes)] * len(sizes)
                weights[0] += 0.5
                mixed = interleave_datasets(sources, probabilities=weights if shares else None, seed=seed,
                                            stopping_strategy=stop)
                order = mixed["at"][:]
                out.append({"sizes": sizes, "stop": stop, "seed": seed, "weights": weights if shares else None,
                            "size": len(order), "first": order[:200], "last": order[-40:]})
    return out


def main():
    disable_progress_bars()
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir(parents=True)
    expected = [{"file": name, "rows": rows} for name, rows in csv_files(ROOT).items()]
    for name, rows in saved_folders(ROOT).items():
        expected.append({"file": name, "rows": rows})
    columnar = arrow_files(ROOT) | delta_files(ROOT) | polars_files(ROOT) | parquet_files(ROOT)
    tables: list[dict] = []
    for name, table in columnar.items():
        rows = rows_of(table)
        same = next((t for t in tables if t["rows"] == rows), None)
        if same:
            same["files"].append(name)
        else:
            tables.append({"files": [name], "rows": rows})
    (ROOT / "rows.json").write_text(json.dumps(expected, ensure_ascii=False))
    (ROOT / "tables.json").write_text(json.dumps(tables, ensure_ascii=False))
    (ROOT / "mixtures.json").write_text(json.dumps(mixtures(), separators=(",", ":")))


if __name__ == "__main__":
    main()
