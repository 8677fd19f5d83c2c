#!/bin/sh
# Run this on each machine. With several machines, give the machine's number, starting at 0, as the argument, and set
# QTRAIN_RANK_SECRET to the same text everywhere; it authenticates the ranks.
set -eu
image="${IMAGE:-qtrain:latest}"
exec docker run --rm --init --network host --ipc host --stop-timeout 300 @gpus@\
  --env QTRAIN_RANK_SECRET --user "$(id -u):$(id -g)" --volume @folder@:@folder@ --workdir @folder@ \
  "$image" @command@ node_rank="${1:-0}"
