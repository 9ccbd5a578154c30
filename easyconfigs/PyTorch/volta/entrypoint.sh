#!/bin/sh
# Say it where there is no GPU, then start what is asked for.
[ -e /dev/nvidiactl ] || echo "there is no NVIDIA GPU here: PyTorch computes on the CPU" >&2
exec "$@"
