#!/bin/sh
# stitchfleet: runs a command with a longer PYTHONPATH. start PYTHONPATH=FIRST :LAST COMMAND...; start try COMMAND...
if [ "$1" = try ]; then
  shift
  command -v "$1" > /dev/null 2>&1 || exit 0
else
  [ $# -gt 2 ] || exit 127
  PYTHONPATH="${1#*=}${PYTHONPATH:+:$PYTHONPATH}$2"
  export PYTHONPATH
  shift 2
fi
exec "$@"
