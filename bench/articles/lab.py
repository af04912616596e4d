"""What the articles share: nodeprof on official builds, tables, pictures, and the blocks of a page between markers."""

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import common

ROOT = common.ROOT
NODEPROF = common.NODEPROF
HERE = Path(__file__).resolve().parent
SUBJECTS = ROOT / "bench/subjects"
EXPRESS = ROOT / "examples/express"
# Whole words of the environment that change what Node does.
UNWANTED = ("NODE_EXTRA_CA_CERTS", "NODE_OPTIONS", "NODE_PATH", "NODE_COMPILE_CACHE", "FORCE_COLOR")
MIB = 1024 * 1024


def builds_folder():
    """Where scripts/fetch-node-builds keeps the builds."""
    if os.environ.get("NODEPROF_NODE_BUILDS"):
        return Path(os.environ["NODEPROF_NODE_BUILDS"])
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "nodeprof/node-builds"


class Lab:
    """Runs nodeprof and keeps its recordings in a folder that goes away."""

    def __init__(self, options, scratch):
        self.options = options
        self.scratch = Path(scratch)
        self.environment = {key: value for key, value in os.environ.items() if key not in UNWANTED}
        self.started = time.monotonic()

    def runs(self, default):
        return default if self.options.runs is None else self.options.runs

    def probed(self, default):
        return default if self.options.probed_runs is None else self.options.probed_runs

    def versions(self, versions):
        """Of these, in their order, those that --only names; all if it names none."""
        if not self.options.only:
            return list(versions)
        return [version for version in versions if version in self.options.only]

    def step(self, versions, base, head):
        """A step between two versions; where one of them is left out, between the first and the last that are there."""
        there = self.versions(versions)
        if not there:
            sys.exit("bench/articles/run: --only leaves no version of this article")
        return (base, head) if base in there and head in there else (there[0], there[-1])

    def node(self, version):
        binary = self.options.builds / version / "bin/node"
        if not os.access(binary, os.X_OK):
            sys.exit(f"bench/articles/run: Node.js {version} is not there: scripts/fetch-node-builds {version}")
        return str(binary)

    def say(self, text):
        print(f"articles: [{time.monotonic() - self.started:4.0f} s] {text}", file=sys.stderr, flush=True)

    def nodeprof(self, *words, cwd=ROOT):
        """What it prints."""
        command = [str(self.options.nodeprof), *map(str, words)]
        done = subprocess.run(command, cwd=cwd, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode != 0:
            sys.exit(f"bench/articles/run: nodeprof {words[0]}: exit status {done.returncode}{common.complaint(done.stderr)}")
        return done.stdout.decode()

    def bench(self, name, versions, argv, runs, probed, cwd=ROOT, warmup=2, extra=(), note=""):
        """A recording with runs of `node ARGV` by each version, in turn and in random order; labelled `version`. None: one run."""
        for version in versions:
            self.node(version)
        runs = 1 if runs is None else self.runs(runs)
        probed = 1 if probed is None else self.probed(probed) if probed else 0
        self.say(f"{name}: {len(versions)} versions, {runs} runs without probes and {probed} with, of each{note and ', ' + note}")
        recording = self.scratch / f"{name}.nodeprof"
        node = f"{self.options.builds}/{{version}}/bin/node"
        words = ["bench", "-q", "-f", "-o", recording, "-n", runs, "--probed-runs", probed, "--warmup", warmup, *self.seed()]
        self.nodeprof(*words, *extra, "-L", "version", ",".join(versions), "--", node, *argv, cwd=cwd)
        return recording

    def compare(self, name, base, head, argv, pairs, probed=10, cwd=ROOT, extra=(), fixed=False):
        """A recording of two versions in pairs, judged by nodeprof's rule; at most `pairs` pairs, or exactly so many."""
        pairs, probed = self.runs(pairs), self.probed(probed)
        self.say(f"{name}: {base} → {head}, at most {pairs} pairs and {probed} runs with probes of each")
        recording = self.scratch / f"{name}.nodeprof"
        words = ["compare", "-q", "-f", "-o", recording, "--probed-runs", probed, *self.seed(), *extra]
        words += ["--max-pairs", pairs] if pairs >= 15 and not fixed else ["-n", pairs]
        self.nodeprof(*words, "--base-node", self.node(base), "--head-node", self.node(head), "--", *argv, cwd=cwd)
        return recording

    def trace(self, name, version, argv, cwd=ROOT, extra=()):
        """A recording of one run with probes."""
        self.say(f"{name}: one traced run on {version}")
        recording = self.scratch / f"{name}.nodeprof"
        self.nodeprof("trace", "-q", "-f", "-o", recording, *extra, "--", self.node(version), *argv, cwd=cwd)
        return recording

    def seed(self):
        return ["--seed", self.options.seed] if self.options.seed is not None else []

    def table(self, recording, view):
        """The rows of `nodeprof export --of VIEW`."""
        return json.loads(self.nodeprof("export", recording, "--of", view, "--format", "json"))

    def diff(self, recording):
        return json.loads(self.nodeprof("diff", recording, "--format", "json"))

    def diff_of(self, base, head):
        return json.loads(self.nodeprof("diff", base, head, "--format", "json"))

    def report(self, recording):
        return json.loads(self.nodeprof("report", recording, "--format", "json"))["runs"]

    def folded(self, recording, metric, *words):
        """Folded stacks: [(frames, value)]."""
        lines = self.nodeprof("flame", recording, "--of", metric, "--format", "folded", *words).splitlines()
        split = (line.rpartition(" ") for line in lines)
        return [(frames.split(";"), int(value)) for frames, _, value in split]

    def facts(self, versions, text):
        """What was measured on what."""
        release = re.match(r"\d+\.\d+", os.uname().release)
        own = (common.first_line([str(self.options.nodeprof), "--version"]) or "").removeprefix("nodeprof ")
        return (
            f"Official Linux x64 builds of Node.js {', '.join(versions)}; {text} "
            f"nodeprof {own}; Linux {release.group(0) if release else '?'}; {common.machine()}."
        )


class Page:
    """The blocks and pictures of one page; nothing is written before all are there."""

    def __init__(self, lab, name):
        self.lab, self.name = lab, name
        self.blocks, self.files = {}, {}

    def block(self, name, *lines):
        self.blocks[name] = "\n".join(lines)

    def plot(self, name, spec):
        """A Vega-Lite specification and its SVG."""
        spec = {
            "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
            "background": "white",
            "padding": 12,
            "config": {
                "font": "system-ui, sans-serif",
                "axis": {"labelFontSize": 12, "labelLimit": 400, "titleFontSize": 12, "titleFontWeight": "normal", "gridColor": "#e6e6e6", "domainColor": "#888", "tickColor": "#888"},
                "legend": {"labelFontSize": 12, "labelLimit": 400, "titleFontSize": 12, "titleFontWeight": "normal"},
                "title": {"fontSize": 15, "anchor": "start", "offset": 12},
                "header": {"labelFontSize": 12, "titleFontSize": 12},
                "view": {"stroke": None},
            },
            **spec,
        }
        text = json.dumps(spec, indent=1, ensure_ascii=False) + "\n"
        done = subprocess.run(
            [self.lab.options.node, str(HERE / "render.mjs")], input=text.encode(), capture_output=True, env=self.lab.environment, check=False
        )
        if done.returncode != 0:
            sys.exit(f"bench/articles/run: {self.name}-{name}: the picture could not be drawn{common.complaint(done.stderr)}")
        self.files[f"{self.name}-{name}.vl.json"] = text
        self.files[f"{self.name}-{name}.svg"] = done.stdout.decode()

    def flame(self, name, *words):
        """A flame graph."""
        text = self.lab.nodeprof("flame", *words)
        # Where things are on this machine is nobody's business: the project's files from its root, the builds by their version.
        for folder, shown in ((f"{ROOT}/", ""), (f"{self.lab.options.builds}/", "node-")):
            text = text.replace(folder, shown)
        self.files[f"{self.name}-{name}.svg"] = text

    def write(self, docs):
        """The page with its blocks, and its pictures; each file whole or not at all."""
        path = docs / f"{self.name}.md"
        text = path.read_text() if path.exists() else (ROOT / "docs/articles" / f"{self.name}.md").read_text()
        there = set(re.findall(r"<!-- articles:([\w-]+):begin -->", text))
        if there != set(self.blocks):
            wrong = ", ".join(sorted(there ^ set(self.blocks)))
            sys.exit(f"bench/articles/run: {path.name}: markers and blocks are not the same: {wrong}")
        for block, lines in self.blocks.items():
            begin, end = f"<!-- articles:{block}:begin -->", f"<!-- articles:{block}:end -->"
            pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
            text = pattern.sub(lambda _, lines=lines, begin=begin, end=end: f"{begin}\n{lines.rstrip()}\n{end}", text)
        pictures = docs / "pictures"
        for folder in (docs, pictures):
            if not folder.exists():
                folder.mkdir(parents=True)
                owned(folder)
        for file, content in self.files.items():
            replace(pictures / file, content)
        replace(path, text)


def owned(path):
    """make articles runs as root; what it makes belongs to the owner of the tree."""
    if os.geteuid() == 0:
        status = path.parent.stat()
        os.chown(path, status.st_uid, status.st_gid)


def replace(path, text):
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text)
    temporary.chmod(0o644)
    owned(temporary)
    os.replace(temporary, path)


# ---- figures ----------------------------------------------------------------------------------------------------------


def by_version(rows):
    """Rows of the view `runs` by their label `version`."""
    found = {}
    for row in rows:
        found.setdefault(row["labels"]["version"], []).append(row)
    return found


def bare(rows):
    return [row for row in rows if row["mode"] == "bare"]


def traced(rows):
    return [row for row in rows if row["mode"] != "bare"]


def milliseconds(rows):
    """Wall times of the runs without probes."""
    return [row["time"]["wall_ns"] / 1e6 for row in bare(rows)]


def of_runs(rows, runs):
    """Those of a table that belong to these runs."""
    numbers = {run["run"] for run in runs}
    return [row for row in rows if row["run"] in numbers]


def count(values):
    """An exact count, or its range: `12`, `12…14`."""
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,}…{high:,}"


def spread(values, digits=1):
    """Mean ± standard deviation."""
    mean = statistics.fmean(values)
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}"


def middle(values, digits=1):
    return f"{statistics.median(values):.{digits}f}"


def kilobytes(values):
    return f"{statistics.median(values) / 1000:,.1f}"


def grid(head, rows):
    """A Markdown table: the first column is text, the others are figures, but those whose head ends in a space."""
    align = "|".join("---" if index == 0 or title.endswith(" ") else "--:" for index, title in enumerate(head))
    lines = [f"| {' | '.join(title.strip() for title in head)} |", f"|{align}|"]
    return [*lines, *(f"| {' | '.join(common.cell(str(cell)) for cell in row)} |" for row in rows)]


def verdict(diff, most=None):
    """The sentence of a diff and its causes, or the first of them, as nodeprof prints them."""
    lines = [f"> **{plain(diff['verdict']['sentence'])}**"]
    causes = diff["causes"][:most]
    lines += [">", *(f"> {index}. {upper(cause['sentence'])}" for index, cause in enumerate(causes, 1))] if causes else []
    return lines


def plain(text):
    """Stars are no emphasis."""
    return text.replace("*", "\\*")


def upper(text):
    return text[:1].upper() + text[1:]


def difference(before, after):
    """`+3`, `−20` of medians."""
    change = statistics.median(after) - statistics.median(before)
    return "0" if change == 0 else f"{'+' if change > 0 else '−'}{abs(change):,.0f}"


@contextlib.contextmanager
def scratch_folder():
    with tempfile.TemporaryDirectory(prefix="nodeprof-articles-") as folder:
        # Under sudo the programs run as the user who typed it, and have to read theirs there.
        os.chmod(folder, 0o755)
        yield folder
