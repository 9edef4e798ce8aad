"""Runs a command in which one rank differs. on_rank.py RANK [NAME=VALUE ...] -- COMMAND...

STORE=refuses | late | silent puts a proxy before the rank's rendezvous store: our cells are refused, answered after 0.3 s, or, once a
step has been agreed on, not answered any more. Horovod's own are handed on.
"""

import os
import subprocess
import sys

words = sys.argv[1:]
end = words.index("--")
rank, given, command = words[0], words[1:end], words[end + 1 :]
if os.environ["HOROVOD_RANK"] == rank:
    for word in given:
        name, _, value = word.partition("=")
        if name == "STORE":
            proxy = os.path.join(os.path.dirname(os.path.abspath(__file__)), "store_proxy.py")
            place = [os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"]]
            clean = {
                key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "STITCHFLEET_ENABLED")
            }
            started = subprocess.Popen(
                [sys.executable, proxy, value, *place, str(os.getpid())], stdout=subprocess.PIPE, text=True, env=clean
            )
            os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"] = "127.0.0.1"
            os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"] = started.stdout.readline().strip()
        else:
            os.environ[name] = value
os.execvp(command[0], command)
