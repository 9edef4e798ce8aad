"""A workload of the benchmark without TensorFlow: a step computes for a fifth of its time and waits.

Keeps the conventions of scripts/workloads."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--log")
parser.add_argument("--xla", action="store_true")
parser.add_argument("--slower", type=float, default=1.0, help="how much longer a step is with --xla")
parser.add_argument("--losses-times", type=float, default=1.0, help="compute losses that are so much larger")
parser.add_argument("--fail-with-xla", action="store_true")
parser.add_argument("--fail", action="store_true")
parser.add_argument("--die-at", type=int, default=-1)
parser.add_argument("--helper", action="store_true", help="have a child in a session of its own")
parser.add_argument("--deaf", action="store_true", help="take no notice of Ctrl-C or SIGTERM")
arguments = parser.parse_args()

if arguments.fail or (arguments.fail_with_xla and arguments.xla):
    sys.exit("this cannot be compiled")
if arguments.deaf:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if arguments.helper:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)

step_s = 0.005 * (arguments.slower if arguments.xla else 1.0)
losses, starts, seconds = [], [], []
try:
    for i in range(arguments.steps):
        if i == arguments.die_at:
            os.abort()
        start = time.monotonic()
        until = time.process_time() + step_s / 5
        while time.process_time() < until:
            pass
        time.sleep(step_s * 4 / 5)
        seconds.append(time.monotonic() - start)
        starts.append(start)
        losses.append(arguments.losses_times / (i + 1))
        if i % 20 == 0:
            print(f"step {i:5d}  loss {losses[-1]:.6f}", flush=True)
except KeyboardInterrupt:
    pass
if arguments.log:
    with open(arguments.log, "w") as log:
        json.dump({"losses": losses, "starts": starts, "seconds": seconds}, log)
