"""The programs of tests/guest on this driver: each natively and under the library, beside a daemon. Both must agree."""
import os
import re
import shutil
import subprocess

import harness

LIMIT_S = 40  # of one program


def cases_of(folder):
    """(name, beside another job) of those that need no simulated driver."""
    rows = re.findall(r"^CASE\((\w+), \w+, \"[^\"]*\", ([^)]*)\)", (folder / "cases.def").read_text(), re.MULTILINE)
    return [(name, "BESIDE" in flags) for name, flags in rows if "SIMULATED" not in flags]


def outcome(test, name, env):
    """All that a run shows: status, stdout, stderr without our lines, files."""
    folder = test.folder / "empty"
    folder.mkdir()
    try:
        done = subprocess.run([str(test.programs / name)], env=env, cwd=folder, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=LIMIT_S, start_new_session=True, check=False)
        errors = [line for line in done.stderr.splitlines(keepends=True) if not line.startswith(b"gpushare[")]
        files = [(path.name, path.read_bytes()) for path in sorted(folder.iterdir())]
        return done.returncode, done.stdout, b"".join(errors), files
    except subprocess.TimeoutExpired as late:
        return "does not end", late.stdout or b"", late.stderr or b"", []
    finally:
        shutil.rmtree(folder)


def run_beside(test, daemon, name):
    """Under the library, while another job takes turns."""
    with test.start("job", "--bytes", "16M", "--rounds", "0", "--progress", env=test.env(daemon)) as other:
        other.expect("round 1")
        seen = outcome(test, name, test.env(daemon))
        other.say("stop")
        other.finish()
        return seen


def compare(test, daemon, name, beside):
    native = outcome(test, name, test.env())
    if native[0] == 77:
        raise harness.Skip(native[1].decode().splitlines()[-1] if native[1] else "exit 77")
    guest = run_beside(test, daemon, name) if beside else outcome(test, name, test.env(daemon))
    harness.check(native[1].endswith(b"ok\n"), f"natively {native[0]}: {native[1][-300:]!r} {native[2][-200:]!r}")
    for what, one, other in zip(("status", "stdout", "stderr", "files"), native, guest):
        harness.check(one == other, f"{what}: natively {str(one)[-300:]}, under the library {str(other)[-300:]}")


def cases(test):
    for turns in (False, True):
        with test.daemon(mode="on" if turns else "auto") as daemon:
            for name, beside in cases_of(test.programs):
                if beside == turns:
                    test.case(name, lambda: compare(test, daemon, name, beside))


os.environ.pop("GPUSHARE_MEMORY", None)
harness.main(cases)
