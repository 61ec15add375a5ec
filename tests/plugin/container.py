"""Containers as a runtime makes them of mounts and environment: a program on the simulated driver, in a mount namespace of
its own. SKIP: why there can be none; None."""
import os
import subprocess

UNSHARE = ["unshare", "--mount", "--propagation", "private"]
if os.geteuid() != 0:
    UNSHARE += ["--user", "--map-root-user"]

# Arguments: pairs of paths of the container and of the host, "--", the program. /etc has nothing of ours before.
RUNTIME = """
set -e
[ -z "$CGROUP" ] || echo $$ >"$CGROUP/cgroup.procs"
cp /etc/ld.so.cache "$SCRATCH"
mount -t tmpfs none /etc
cp "$SCRATCH/ld.so.cache" /etc
while [ "$1" != -- ]; do
  [ -e "$1" ] || : >"$1"
  mount --bind "$2" "$1"
  mount -o remount,bind,ro "$1"
  shift 2
done
shift
exec "$@"
"""

SKIP = None
if subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "none", "/mnt"], stderr=subprocess.DEVNULL, check=False).returncode:
    SKIP = "no mount namespaces"


def start(scratch, program, environment, mounts, cgroup=None):
    """The process of the program (a list), with pipes. mounts: (path in the container, on the host), read-only; cgroup: the
    folder of the control group that it runs in."""
    scratch.mkdir(exist_ok=True)
    settings = {
        **environment,
        "LD_LIBRARY_PATH": os.environ["GS_SIM_DIR"],
        "GPUSHARE_SIM_CARD": os.environ["GS_SIM_CARD"],
        "GPUSHARE_SIM_STATE": str(scratch / "card"),
    }
    paths = [path for mount in mounts for path in mount]
    started = ["env", "-i", *(f"{name}={value}" for name, value in settings.items()), *program]
    return subprocess.Popen([*UNSHARE, "sh", "-c", RUNTIME, "runtime", *paths, "--", *started], text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            env={**os.environ, "SCRATCH": str(scratch), "CGROUP": str(cgroup or "")})
