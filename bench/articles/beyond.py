"""Beyond the articles: more crossings on 22 than on 20 and 24, and what `node -e 0` does longer than before."""

import statistics

import lab as laboratory
import packages
import startup
from lab import count, grid, middle, milliseconds, of_runs, spread, traced

APPLICATION = ["20.20.2", "22.23.3", "24.21.0", "26.10.0"]
START = ["20.0.0", "20.20.2", "21.7.3", "22.23.3", "23.9.0", "24.21.0", "25.9.0", "26.10.0"]
VERSIONS = sorted({*APPLICATION, *START})
# The steps that are followed: of the application, and of the start.
MORE, FEWER = ("20.20.2", "22.23.3"), ("22.23.3", "24.21.0")
LONGER = ("21.7.3", "22.23.3")
PACKAGES = 100
# Callbacks whose calls changed by fewer are left out of the table.
LEAST_CALLS = 20
HZ = 5000
SEED = "v8::internal::HashSeed::InitializeRoots"
PRIME = "detail::sprp"


def measure(lab, page):
    application(lab, page)
    start(lab, page)


# ---- crossings of an application ---------------------------------------------------------------------------------------


def application(lab, page):
    versions = lab.versions(APPLICATION)
    folder = lab.scratch / "cjs"
    folder.mkdir()
    programs = {
        "express": ("examples/express", ["app.js"], laboratory.EXPRESS),
        "packages": (f"{PACKAGES} CommonJS packages", [packages.write(folder, PACKAGES, "cjs")], folder),
    }
    recordings = {name: lab.bench(f"beyond-{name}", versions, argv, 20, 5, cwd=cwd) for name, (_, argv, cwd) in programs.items()}
    runs = {name: laboratory.by_version(lab.table(recording, "runs")) for name, recording in recordings.items()}
    callbacks = {name: lab.table(recording, "callbacks") for name, recording in recordings.items()}

    rows = []
    for name, (title, _, _) in programs.items():
        for version in versions:
            seen = traced(runs[name][version])
            rows.append([title, version, count([r["crossings"] for r in seen]), count([r["stats"] for r in seen]), count([r["opens"] for r in seen]), spread(milliseconds(runs[name][version]))])
    some = runs["express"][versions[0]]
    page.block(
        "facts",
        lab.facts(
            sorted({*versions, *lab.versions(START)}, key=lambda v: [int(p) for p in v.split(".")]),
            f"applications: {len(laboratory.bare(some))} runs without probes and {len(traced(some))} with of each, in random order.",
        ),
    )
    page.block("application", *grid(["program", "node ", "crossings", "stats", "opens", "time without probes, ms"], rows))
    page.plot("application", application_plot(programs, versions, runs))
    page.block("callbacks", *(line for name, (title, _, _) in programs.items() for line in [f"**{title}**", "", *callbacks_table(versions, runs[name], callbacks[name]), ""]))
    page.block("callers", *callers(lab, versions, programs["packages"]))
    base, head = lab.step(APPLICATION, *MORE)
    page.flame(
        "crossings-diff", "--diff", f"{recordings['packages']}@version={base}", f"{recordings['packages']}@version={head}",
        "--of", "crossings", "--by", "phase", "--from", "bootstrap_complete", "--title", f"Calls between JavaScript and C++: {base} → {head}",
    )
    lines = []
    for step in dict.fromkeys((lab.step(APPLICATION, *MORE), lab.step(APPLICATION, *FEWER))):
        diff = lab.diff_of(*(f"{recordings['packages']}@version={version}" for version in step))
        lines += [f"**{step[0]} → {step[1]}, {PACKAGES} CommonJS packages**", "", *laboratory.verdict(diff, most=3), ""]
    page.block("verdicts", *lines)


def application_plot(programs, versions, runs):
    values = [
        {"program": title, "node": version, "crossings": traced(runs[name][version])[0]["crossings"]}
        for name, (title, _, _) in programs.items()
        for version in versions
    ]
    return {
        "title": "Calls from JavaScript to C++ until the program ends",
        "data": {"values": values},
        "facet": {"column": {"field": "program", "type": "nominal", "title": None, "sort": [title for title, _, _ in programs.values()]}},
        "spec": {
            "width": 260,
            "height": 240,
            "mark": {"type": "bar", "size": 34, "color": "#3b7dbd"},
            "encoding": {
                "x": {"field": "node", "type": "ordinal", "sort": versions, "title": None, "axis": {"labelAngle": 0}},
                "y": {"field": "crossings", "type": "quantitative", "title": "crossings"},
            },
        },
        "resolve": {"scale": {"y": "independent"}},
    }


def callbacks_table(versions, runs, rows):
    """C++ functions whose number of calls differs most between the versions; a first run each: the counts are exact."""
    calls = {}
    for version in versions:
        for row in of_runs(rows, traced(runs[version])[:1]):
            name = f"{row['binding']}.{row['function'].rpartition('::')[2].partition('<')[0]}"
            calls.setdefault(name, dict.fromkeys(versions, 0))[version] += row["calls"]
    differing = {name: of for name, of in calls.items() if max(of.values()) - min(of.values()) >= LEAST_CALLS}
    ordered = sorted(differing.items(), key=lambda item: min(item[1].values()) - max(item[1].values()))
    return grid(["C++ function", *versions], [[f"`{name}`", *(f"{of[version]:,}" for version in versions)] for name, of in ordered[:8]])


def callers(lab, versions, program):
    """Who calls fs.InternalModuleStat: the two innermost functions."""
    _, argv, folder = program
    found = {}
    for version in versions:
        recording = lab.trace(f"beyond-stat-{version}", version, argv, cwd=folder)
        for frames, calls in lab.folded(recording, "crossings"):
            if frames[-1].partition(" [")[0] != "fs.InternalModuleStat":
                continue
            # V8's own frames have no name.
            named = [frame.split(" ")[0] for frame in frames[:-1] if " node:" in frame and not frame.startswith("(")]
            name = named[-1] if named else "(unknown)"
            found.setdefault(name, dict.fromkeys(versions, 0))[version] += calls
    ordered = sorted(found.items(), key=lambda item: -max(item[1].values()))
    return grid(["`fs.InternalModuleStat` called by", *versions], [[f"`{name}`", *(f"{of[version]:,}" for version in versions)] for name, of in ordered])


# ---- node -e 0 ---------------------------------------------------------------------------------------------------------


def start(lab, page):
    versions = lab.versions(START)
    recording = lab.bench("beyond-start", versions, ["-e", "0"], 30, 20, extra=["--freq", HZ])
    runs = laboratory.by_version(lab.table(recording, "runs"))
    shares = {version: cpu(lab, recording, versions, version) for version in versions}
    rows = []
    for version in versions:
        seen = traced(runs[version])
        snapshot = [startup.spans(recording, run).get("isolate snapshot", 0.0) for run in seen]
        total, seed, prime = (ns / 1e6 for ns in shares[version])
        rows.append([version, spread(milliseconds(runs[version])), middle(milliseconds(runs[version])), middle(snapshot, 2), f"{total:.1f}", f"{seed:.2f}", f"{prime:.2f}"])
    page.block("start", *grid(["node", "mean ± σ, ms", "median, ms", "isolate snapshot, ms", "CPU of the main thread, ms", "in the hash seed, ms", "of it testing primes, ms"], rows))
    page.plot("start", start_plot(versions, runs, shares))
    base, head = lab.step(START, *LONGER)
    page.block("start-verdict", f"**{base} → {head}, node -e 0**", "", *laboratory.verdict(lab.diff_of(f"{recording}@version={base}", f"{recording}@version={head}")), "", *grown(lab, recording, base, head))
    page.flame(
        "start-diff", "--diff", f"{recording}@version={base}", f"{recording}@version={head}", "--of", "cpu", "--thread", "main",
        "--from", "v8", "--until", "v8", "--least", 0.3, "--title", f"CPU time of the phase V8: {base} → {head}",
    )


def cpu(lab, recording, versions, version):
    """CPU time of the main thread, below the function that seeds V8's hashes, and in its search for primes: ns, means of the runs."""
    other = next((other for other in versions if other != version), version)
    total = seed = prime = 0.0
    lines = lab.nodeprof("flame", "--diff", f"{recording}@version={other}", f"{recording}@version={version}", "--of", "cpu", "--thread", "main", "--format", "folded")
    for line in lines.splitlines():
        frames, _, head = line.rsplit(" ", 2)
        names = frames.split(";")
        total += float(head)
        seed += float(head) if SEED in names else 0.0
        prime += float(head) if SEED in names and PRIME in names else 0.0
    return total, seed, prime


def grown(lab, recording, base, head):
    """The functions of the phase V8 whose CPU time grew most, with what they call."""
    change = {}
    lines = lab.nodeprof(
        "flame", "--diff", f"{recording}@version={base}", f"{recording}@version={head}", "--of", "cpu", "--thread", "main", "--from", "v8", "--until", "v8", "--format", "folded"
    )
    for line in lines.splitlines():
        frames, before, after = line.rsplit(" ", 2)
        for name in set(frames.split(";")):
            one, two = change.get(name, (0.0, 0.0))
            change[name] = (one + float(before), two + float(after))
    # Functions that are on both sides or new; the outermost ones have all below them.
    ordered = sorted(change.items(), key=lambda item: item[1][0] - item[1][1])
    rows = [[f"`{name}`", f"{one / 1e6:.2f}", f"{two / 1e6:.2f}", f"{(two - one) / 1e6:+.2f}".replace("-", "−")] for name, (one, two) in ordered[:12] if "::" in name]
    return grid(["CPU time in the phase V8, with callees, ms", base, head, "change"], rows)


def start_plot(versions, runs, shares):
    values = []
    for version in versions:
        whole = statistics.median(milliseconds(runs[version]))
        seed = shares[version][1] / 1e6
        values += [{"node": version, "what": "hash seed", "ms": round(seed, 3), "order": 1}, {"node": version, "what": "all else", "ms": round(max(0.0, whole - seed), 3), "order": 0}]
    return {
        "title": "node -e 0: median time, and the CPU time of the hash seed in it",
        "data": {"values": values},
        "width": 560,
        "height": 260,
        "mark": {"type": "bar", "size": 34},
        "encoding": {
            "x": {"field": "node", "type": "ordinal", "sort": versions, "title": None, "axis": {"labelAngle": 0}},
            "y": {"field": "ms", "type": "quantitative", "title": "ms"},
            "color": {"field": "what", "type": "nominal", "title": None, "scale": {"domain": ["all else", "hash seed"], "range": ["#3b7dbd", "#d1495b"]}, "legend": {"orient": "top"}},
            "order": {"field": "order"},
        },
    }
