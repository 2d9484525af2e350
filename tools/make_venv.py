"""Make or mend the virtual environment .venv, with progress, and say how to mend what fails.

    python3 tools/make_venv.py            # does nothing, in milliseconds, when .venv is up to date

Called by the Makefile before every target that needs the environment. Needs nothing but a Python 3 of any version to start; it looks for a
Python 3.11 - 3.13 itself. A stamp, written last, holds a hash of requirements.lock and pyproject.toml: without it, or with another one,
the environment is completed in place, so an interrupted set-up goes on where it stopped.

Not covered: Windows, and environments made by other tools (the conda route uses environment.yml; see `make help`).
"""

import contextlib
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
STAMP = os.path.join(VENV, "lab-ready.json")
LOG = os.path.join(ROOT, ".venv-setup.log")
LOCK = os.path.join(ROOT, "requirements.lock")
VERSIONS = ("3.11", "3.12", "3.13")
NEEDED_GB = 3.0  # of a CPU build of torch; a CUDA build takes about three times as much


class SetupError(Exception):
    """What failed and what to do, for people."""


def say(text):
    print(text, flush=True)


def wanted_key():
    """Return the hash that a finished environment carries in its stamp."""
    digest = hashlib.sha256()
    with open(LOCK, "rb") as stream:
        digest.update(stream.read())
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as stream:
        digest.update(
            stream.read().split(b"\n[tool.ruff", 1)[0]
        )  # what follows are settings of tools, not of the install
    digest.update(ROOT.encode())  # an environment that was moved or copied has the old paths inside
    return digest.hexdigest()


def is_ready(key):
    try:
        with open(STAMP, encoding="utf-8") as stream:
            return json.load(stream)["key"] == key and os.access(os.path.join(VENV, "bin", "python"), os.X_OK)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def find_python():
    """Return the path of a Python 3.11 - 3.13 that can make environments."""
    seen = []
    for candidate in [sys.executable] + ["python" + version for version in reversed(VERSIONS)] + ["python3", "python"]:
        path = shutil.which(candidate) if candidate else None
        if not path:
            continue
        probe = "import sys; print('%d.%d' % sys.version_info[:2]); import venv, ensurepip"
        done = subprocess.run(
            [path, "-c", probe], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True
        )
        version = done.stdout.strip()
        if version in VERSIONS and done.returncode == 0:
            return path
        if version:
            seen.append("%s is %s%s" % (path, version, "" if version not in VERSIONS else " without venv/ensurepip"))
    found = "; ".join(dict.fromkeys(seen)) or "none found"
    raise SetupError(
        "no Python 3.11, 3.12 or 3.13 with the venv module (%s).\n"
        "Install one (Debian/Ubuntu: apt install python3.11 python3.11-venv; macOS: brew install python@3.11)\n"
        "or use conda: conda env create -f environment.yml" % found
    )


def usable(python):
    """Say whether the environment's own Python starts, has pip and has a version that fits."""
    probe = "import sys, pip; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(
            [python, "-c", probe], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True
        )
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() in VERSIONS


def run(step, command, expected=0):
    """Run one step; raise `SetupError` with a reading of its log when it fails.

    With `expected` packages the output is condensed to a count every few seconds; else it goes to the screen as it is.
    """
    if os.path.exists(LOG):
        os.remove(LOG)
    code = count_packages(command, expected) if expected else subprocess.call(command, cwd=ROOT)
    if code == 0:
        return
    try:
        with open(LOG, encoding="utf-8", errors="replace") as stream:
            text = stream.read()
    except OSError:
        text = ""
    raise SetupError("%s failed: %s" % (step, diagnose(text)))


def count_packages(command, expected):
    """Run pip and print how far it is; return its exit code."""
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, errors="replace"
    )
    count, shown = 0, time.time()
    for line in process.stdout:
        if line.startswith(("Collecting ", "Requirement already satisfied", "Processing /")):
            count += 1
        elif line.startswith("ERROR"):
            say("      " + line.strip())
        elif line.startswith("Installing collected packages"):
            say("      all fetched; unpacking %d packages" % (line.count(",") + 1))
        if time.time() - shown > 5:
            shown = time.time()
            say("      %d of about %d packages looked up or fetched" % (min(count, expected), expected))
    return process.wait()


def diagnose(log):
    """Turn pip's log into what happened and what to do."""
    if "No space left on device" in log:
        free = shutil.disk_usage(ROOT).free / 1e9
        return "no space left (%.1f GB free here, about %.0f GB needed). Free some, or set TMPDIR to a larger disk." % (
            free,
            NEEDED_GB,
        )
    if re.search(
        r"NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|ProxyError|Network is unreachable", log
    ):
        return (
            "the package registry is not reachable. Check the network, proxy or pip's index settings (pip config list)."
        )
    if re.search(r"CERTIFICATE_VERIFY_FAILED|SSLError", log):
        return "the registry's certificate is not trusted. Set PIP_CERT to your organisation's certificate file."
    missing = re.search(r"No matching distribution found for (\S+)", log)
    if missing:
        return (
            "the registry offers no %s for this Python and platform. See requirements.lock; try Python 3.11."
            % missing.group(1)
        )
    if "Permission denied" in log:
        return "no permission to write. Check the owner of %s." % ROOT
    errors = [line for line in log.splitlines() if "ERROR" in line]
    return (errors[-1].split("ERROR", 1)[-1].strip(": ") if errors else "see the messages above") + "."


def drop_half_installed(venv):
    """Forget packages whose unpacking was cut short, so that pip installs them again; return their names.

    pip writes RECORD last. A package folder with metadata but without RECORD would count as installed.
    """
    dropped = []
    for info in glob.glob(os.path.join(venv, "lib", "python3*", "site-packages", "*.dist-info")):
        if not os.path.exists(os.path.join(info, "RECORD")):
            shutil.rmtree(info, ignore_errors=True)
            dropped.append(os.path.basename(info)[: -len(".dist-info")])
    return sorted(dropped)


def installed(python, package):
    """Return the version of `package` in the environment, without a local part such as +cpu, or None."""
    code = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]).split('+')[0])"
    done = subprocess.run(
        [python, "-c", code, package], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True
    )
    return done.stdout.strip() or None


@contextlib.contextmanager
def only_one():
    """Let one set-up run at a time; a second waits for it and then finds the work done."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(os.path.join(ROOT, ".venv-setup.lock"), "w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("Another set-up of .venv is running; waiting for it.")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def build(key):
    """Bring .venv up to date: environment, torch, everything else."""
    started = time.time()
    python = os.path.join(VENV, "bin", "python")
    # The stamp goes first and comes back last: whatever happens between, the next call repairs.
    if os.path.exists(STAMP):
        os.remove(STAMP)
    if usable(python):
        say("[1/3] Environment .venv is there; completing it")
        for name in drop_half_installed(VENV):
            say("      %s was cut short; installing it again" % name)
    else:
        base = find_python()
        free = shutil.disk_usage(ROOT).free / 1e9
        if free < NEEDED_GB:
            raise SetupError("%.1f GB free in %s, about %.0f GB needed. Free some space." % (free, ROOT, NEEDED_GB))
        say("[1/3] Making the environment .venv with %s" % base)
        run("making .venv", [base, "-m", "venv", "--clear", VENV])
    with open(LOCK, encoding="utf-8") as stream:
        pins = [line.strip() for line in stream if "==" in line and not line.startswith("#")]
    torch = [pin for pin in pins if pin.startswith("torch==")][0]
    pip = [python, "-m", "pip", "--log", LOG, "--disable-pip-version-check", "install", "--no-input", "--prefer-binary"]
    # Python compiles what it imports by itself; compiling all of it here would cost half a minute and half a gigabyte.
    pip += ["--no-compile"]
    # torch goes first and alone: with it in place no other package can pull in another build of it.
    if installed(python, "torch") == torch.split("==")[1]:
        say("[2/3] %s is there" % torch)
    else:
        say("[2/3] Installing %s (the largest part: a CPU build is 0.2 GB, a CUDA build several)" % torch)
        run("installing torch", pip + [torch])
    say("[3/3] Installing the other packages of requirements.lock, and this project")
    run("installing requirements.lock", pip + ["-r", LOCK, "-e", ROOT], expected=len(pins))
    if subprocess.call([python, "-c", "import torch, transformers, papermill, lib"], cwd=VENV) != 0:
        raise SetupError(
            "the packages are installed but do not import (see above). Remove .venv and try again: rm -rf .venv"
        )
    with open(STAMP + ".part", "w", encoding="utf-8") as stream:
        json.dump({"key": key, "seconds": round(time.time() - started, 1)}, stream)
    os.replace(STAMP + ".part", STAMP)
    if os.path.exists(LOG):
        os.remove(LOG)
    say("Environment ready in %.0f s." % (time.time() - started))


def main():
    if os.name == "nt":
        say(
            "error: the Makefile route is for Linux and macOS; on Windows use WSL, or conda: conda env create -f environment.yml"
        )
        return 1
    key = wanted_key()
    if is_ready(key):
        return 0
    try:
        with only_one():
            if not is_ready(key):
                build(key)
    except SetupError as error:
        say("\nSet-up stopped: %s\nThen run the same command again; it goes on where it stopped." % error)
        return 1
    except KeyboardInterrupt:
        say("\nSet-up interrupted; run the same command again, it goes on where it stopped.")
        return 130
    except OSError as error:
        say("\nSet-up stopped: %s. Check the free space and the permissions of %s, then run it again." % (error, ROOT))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
