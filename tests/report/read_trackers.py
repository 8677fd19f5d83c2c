#!/usr/bin/env python3
"""Reads the files of a run with report_to ["wandb", "mlflow"] by means of these packages, and compares them with
metrics.jsonl.

Needs wandb and mlflow-skinny from PyPI (tested with wandb 0.31 and 0.17.9, mlflow-skinny 3.17). Usage: read_trackers.py OUTPUT_DIR
"""
import json
import os
import struct
import sys
import zlib
from pathlib import Path

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
from mlflow.tracking import MlflowClient  # noqa: E402
from wandb.proto import wandb_internal_pb2 as proto  # noqa: E402

BLOCK, HEADER = 32768, 7


def records(file):
    data, at, record = file.read_bytes(), HEADER, b""
    assert data[:HEADER] == b":W&B\xe1\xbe\x00"
    while at < len(data):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
            continue
        crc, size, kind = struct.unpack("<IHB", data[at:at + HEADER])
        part = data[at + HEADER:at + HEADER + size]
        assert crc == zlib.crc32(part, zlib.crc32(bytes([kind])))
        record, at = record + part, at + HEADER + size
        if kind in (1, 4):
            parsed = proto.Record()
            parsed.ParseFromString(record)
            yield parsed
            record = b""


def check_wandb(output, rows):
    (file,) = output.glob("wandb/offline-run-*/run-*.wandb")
    found = list(records(file))
    history = [r.history for r in found if r.WhichOneof("record_type") == "history"]
    assert len(history) == len(rows), (len(history), len(rows))
    for row, items in zip(rows, history):
        values = {item.nested_key[0]: json.loads(item.value_json) for item in items.item}
        assert values["train/global_step"] == row["step"]
        for key, name in (("loss", "train/loss"), ("eval_loss", "eval/loss")):
            assert values.get(name) == row.get(key), (key, row)
    assert found[-1].WhichOneof("record_type") == "exit"
    print(f"wandb: {len(found)} records, {len(history)} rows of run {found[1].run.run_id}")


def check_mlflow(output, rows):
    client = MlflowClient((output / "mlruns").resolve().as_uri())
    runs = client.search_runs([e.experiment_id for e in client.search_experiments()])
    (run,) = runs
    for key in ("loss", "eval_loss", "learning_rate"):
        expected = [(r["step"], r[key]) for r in rows if r.get(key) is not None]
        there = [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, key)] if expected else []
        assert there == expected, key
    print(f"mlflow: run {run.info.run_id}, {run.info.status}, {len(run.data.metrics)} metrics, {len(run.data.params)} params")


def main():
    output = Path(sys.argv[1])
    rows = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    check_wandb(output, rows)
    check_mlflow(output, rows)


main()
