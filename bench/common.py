"""What bench/run and bench/report share: statistics, the Markdown between markers, words to the user."""

import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What `make build` has built.
NODEPROF = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve() / "release/nodeprof"


def bootstrap_interval(values, rng, resamples):
    """95 % percentile bootstrap interval of the median."""
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(resamples))
    return medians[int(resamples * 0.025)], medians[int(resamples * 0.975)]


def write_between_markers(path, name, text):
    """Replaces what stands between the two markers of this name; appends both where the file has none."""
    begin, end = f"<!-- bench:{name}:begin -->", f"<!-- bench:{name}:end -->"
    old = path.read_text() if path.exists() else "# Benchmarks\n\nWritten by `make bench`; bench/README.md says how.\n"
    block = f"{begin}\n{text.rstrip()}\n{end}"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    new = pattern.sub(lambda _: block, old) if pattern.search(old) else f"{old.rstrip()}\n\n{block}\n"
    # Whole or not at all: the file is under version control and people's prose is in it.
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(new)
    if path.exists():
        # make bench runs as root; the file stays its owner's.
        status = path.stat()
        os.chmod(temporary, status.st_mode & 0o7777)
        if os.geteuid() == 0:
            os.chown(temporary, status.st_uid, status.st_gid)
    os.replace(temporary, path)


def shown(word):
    """A path as it may be printed: relative to the tree, or its last part; a report names no folder of its machine."""
    word = str(word)
    if not os.path.isabs(word):
        return word
    try:
        return str(Path(word).relative_to(ROOT))
    except ValueError:
        return os.path.basename(word)


def complaint(stderr):
    """`: ` and the line of a tool's standard error that most likely says why it failed; empty if it said nothing."""
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return f": {(errors or lines)[-1][:200]}" if lines else ""


def cell(text):
    """Text for a Markdown table cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def first_line(argv):
    """The first line that a command prints; None if it cannot run."""
    try:
        out = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return out.splitlines()[0].strip() if out.strip() else None


def machine():
    """Processor and number of cores."""
    model = platform.machine()
    try:
        match = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        model = match.group(1).strip() if match else model
    except OSError:
        pass
    return f"{model}, {len(os.sched_getaffinity(0))} cores"


def needs_root(tool):
    if os.geteuid() != 0:
        sys.exit(f"{tool}: needs root; type: scripts/as-root {tool}")


def needs_built(tool, *programs):
    for program in programs:
        if not os.access(program, os.X_OK):
            sys.exit(f"{tool}: {shown(program)} is not there; type: make build")


def runs(tool, node):
    """Absolute path of a node that is given by its path or its name."""
    path = shutil.which(str(node)) if node else None
    if not path or not first_line([path, "--version"]):
        sys.exit(f"{tool}: {node or 'node'} is not there or does not run; give another one: --node PATH")
    return os.path.abspath(path)


def note(text):
    progress(None)
    print(f"bench: {text}", file=sys.stderr)


def progress(text):
    """One line that overwrites itself; nothing where nobody watches."""
    if sys.stderr.isatty():
        print("\r\033[K" + (text or ""), end="", file=sys.stderr, flush=True)
