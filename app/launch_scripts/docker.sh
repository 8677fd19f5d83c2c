#!/bin/sh
# On each machine, with its number from 0 as the argument where there are several.
set -eu
image="${IMAGE:-qtrain:latest}"
exec docker run --rm --init --network host --ipc host --stop-timeout 300 @gpus@\
  --user "$(id -u):$(id -g)" --volume @folder@:@folder@ --workdir @folder@ \
  "$image" @command@ node_rank="${1:-0}"
