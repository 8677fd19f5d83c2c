#!/bin/sh
# On each machine, with its number from 0 as the argument where there are several, and the same text in
# QTRAIN_RANK_SECRET, by which the ranks know each other.
set -eu
image="${IMAGE:-qtrain:latest}"
exec docker run --rm --init --network host --ipc host --stop-timeout 300 @gpus@\
  --env QTRAIN_RANK_SECRET --user "$(id -u):$(id -g)" --volume @folder@:@folder@ --workdir @folder@ \
  "$image" @command@ node_rank="${1:-0}"
