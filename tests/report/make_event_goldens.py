"""Writes goldens/events.jsonl, {row, record in hex}: TensorBoard's records for the rows that event_file_test.cpp logs.
Needs: pip install tensorboard setuptools. Run: python tests/report/make_event_goldens.py"""

import json
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

import io

ROWS = [
    dict(step=3, loss=2.25, learning_rate=1e-3, num_tokens=4096, time=1700000000.5),
    dict(step=300, eval_loss=1.5, epoch=0.75, time=1700000001.0),
    dict(step=70000, loss=None, grad_norm=1e30, time=1700000002.0),
]


def tag(key):
    return "eval/" + key.removeprefix("eval_") if key.startswith("eval_") else "train/" + key


def record(event):
    out = io.BytesIO()
    RecordWriter(out).write(event.SerializeToString())
    return out.getvalue().hex()


def event_of(row):
    values = [Summary.Value(tag=tag(k), simple_value=v) for k, v in row.items()
              if k not in ("step", "time") and v is not None]
    return Event(wall_time=row["time"], step=row["step"], summary=Summary(value=values))


def main():
    lines = [dict(row=row, record=record(event_of(row))) for row in ROWS]
    start = Event(step=8, session_log=SessionLog(status=SessionLog.START))
    lines.append(dict(session_of_step=8, event=start.SerializeToString().hex()))
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (Path(__file__).parent / "goldens" / "events.jsonl").write_text(text)


if __name__ == "__main__":
    main()
