"""Runs a command in which one rank differs. on_rank.py RANK [NAME=VALUE ...] -- COMMAND...

NAME+=VALUE puts a path before those that a variable has. DISK=FOLDER:MIB makes the rank see a file system of its own there, with what
the folder has and so many MiB more, all but 8 KiB of which are filled.
STORE=refuses | late | silent puts a proxy before the rank's rendezvous store: our cells are refused, answered after 0.3 s, or, once a
step has been agreed on, not answered any more. Horovod's own are handed on.
"""

import os
import subprocess
import sys

SMALL_DISK = """
held=$(du -sm "$1" | cut -f1)
cp -a "$1" "$1.held"
mount -t tmpfs -o "size=$((held + $0))m" none "$1"
cp -a "$1.held/." "$1"
free=$(($(stat -f -c '%a * %S' "$1")))
head -c "$((free - 8192))" /dev/zero > "$1/ballast"
shift
exec "$@"
"""

words = sys.argv[1:]
end = words.index("--")
rank, given, command = words[0], words[1:end], words[end + 1 :]
if os.environ.get("HOROVOD_RANK", os.environ.get("OMPI_COMM_WORLD_RANK")) == rank:
    for word in given:
        name, _, value = word.partition("=")
        if name.endswith("+"):
            paths = [value, *filter(None, [os.environ.get(name[:-1])])]
            os.environ[name[:-1]] = os.pathsep.join(paths)
        elif name == "DISK":
            folder, _, size = value.partition(":")
            command = [
                "unshare",
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-ec",
                SMALL_DISK,
                size,
                folder,
                *command,
            ]
        elif name == "STORE":
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
