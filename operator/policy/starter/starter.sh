#!/bin/sh
# stitchfleet: runs a command with a longer PYTHONPATH. start PYTHONPATH=FIRST :LAST COMMAND...; start try COPY PAYLOAD START
if [ "$1" = try ]; then
  command -v "$2" > /dev/null 2>&1 && "$2" "$3" "$4"
  [ -z "$4" ] || [ -x "$4/start" ] || cp "$0" "$4/start" || /bin/busybox cp "$0" "$4/start"
  exit 0
fi
[ $# -gt 2 ] || exit 127
PYTHONPATH="${1#*=}${PYTHONPATH:+:$PYTHONPATH}$2"
export PYTHONPATH
shift 2
exec "$@"
