"""Improving Node.js loader performance: the package.json reader in C++, which came with 21.5.0."""

import statistics

import lab as laboratory
import packages
from lab import bare, count, grid, kilobytes, middle, milliseconds, of_runs, spread, traced

VERSIONS = ["20.20.2", "21.4.0", "21.5.0", "22.23.3", "24.21.0", "26.10.0"]
# The release before the reader, and that with it.
BEFORE, AFTER = "21.4.0", "21.5.0"
PACKAGES = 100
# C++ functions that read package.json files: one before, several after.
READERS = (
    "InternalModuleReadJSON",
    "ReadPackageJSON",
    "GetNearestParentPackageJSON",
    "GetNearestParentPackageJSONType",
    "GetPackageScopeConfig",
    "GetPackageType",
)


def is_reader(function):
    return (function or "").rpartition("::")[2].partition("<")[0] in READERS


def measure(lab, page):
    versions = lab.versions(VERSIONS)
    before, after = lab.step(VERSIONS, BEFORE, AFTER)
    folder = lab.scratch / "esm"
    folder.mkdir()
    programs = {
        "vite": ("vite --version", ["node_modules/vite/bin/vite.js", "--version"], laboratory.SUBJECTS),
        "esm": (f"ES modules: {PACKAGES} packages", [packages.write(folder, PACKAGES, "esm")], folder),
        "cjs": ("CommonJS: examples/express", ["app.js"], laboratory.EXPRESS),
    }
    times, compared = {}, {}
    for name, (title, argv, cwd) in programs.items():
        times[name] = lab.bench(f"loader-{name}", versions, argv, 20, 3, cwd=cwd)
        compared[name] = lab.compare(f"loader-{name}-step", before, after, argv, 40, cwd=cwd)
    runs = {name: laboratory.by_version(lab.table(file, "runs")) for name, file in times.items()}

    some = next(iter(runs["vite"].values()))
    pairs = len(bare(lab.table(compared["vite"], "runs"))) // 2
    page.block(
        "facts",
        lab.facts(
            versions,
            f"{len(bare(some))} runs without probes (times) and {len(traced(some))} with (counts) of each, in random order; "
            f"{before} → {after} in pairs (`vite --version`: {pairs}).",
        ),
    )
    page.block("times", *times_table(programs, versions, runs))
    page.plot("times", times_plot(programs, versions, runs))
    page.block("verdicts", *verdicts(lab, programs, compared))
    page.block("package-json", *package_json(lab, programs, versions, times, runs))
    page.plot("opens", opens_plot(lab, programs, versions, times, runs))
    page.block("imports", *imports(lab, versions))
    page.block("scope", *scope(lab, versions, programs["esm"]))
    page.flame("crossings-diff", "--diff", compared["esm"], "--of", "crossings", "--from", "bootstrap_complete", "--by", "phase", "--title", f"Calls between JavaScript and C++: {before} → {after}")
    page.flame("lookups-diff", "--diff", compared["cjs"], "--of", "package-json", "--by", "package", "--least", 0.2, "--title", f"Lookups of package.json, by package: {before} → {after}")


def times_table(programs, versions, runs):
    rows = []
    for name, (title, _, _) in programs.items():
        for version in versions:
            walls = milliseconds(runs[name][version])
            rows.append([title, version, spread(walls), f"{min(walls):.1f} … {max(walls):.1f}", middle(walls), count([r["crossings"] for r in traced(runs[name][version])])])
    return grid(["program", "node ", "mean ± σ, ms", "range, ms", "median, ms", "crossings"], rows)


def times_plot(programs, versions, runs):
    values = [
        {"program": title, "node": version, "ms": round(ms, 3)}
        for name, (title, _, _) in programs.items()
        for version in versions
        for ms in milliseconds(runs[name][version])
    ]
    return {
        "title": "Time of the whole process, without probes",
        "data": {"values": values},
        "facet": {"column": {"field": "program", "type": "nominal", "title": None, "sort": [title for title, _, _ in programs.values()]}},
        "spec": {
            "width": 190,
            "height": 260,
            "mark": {"type": "boxplot", "extent": 1.5, "size": 18, "color": "#3b7dbd", "median": {"color": "white"}, "outliers": {"color": "#888", "size": 12}},
            "encoding": {
                "x": {"field": "node", "type": "ordinal", "sort": versions, "title": None, "axis": {"labelAngle": -40}},
                "y": {"field": "ms", "type": "quantitative", "title": "ms", "scale": {"zero": False}},
            },
        },
        "resolve": {"scale": {"y": "independent"}},
    }


def verdicts(lab, programs, compared):
    lines = []
    for name, (title, _, _) in programs.items():
        diff = lab.diff(compared[name])
        kinds = [cause["kind"] for cause in diff["causes"]]
        place = kinds.index("package_json") + 1 if "package_json" in kinds else None
        lines += [f"**{title}**", "", *laboratory.verdict(diff), ""]
        if place is None:
            lines += ["Reading package.json files is not among the causes."]
        elif place == 1:
            lines += [f"Reading package.json files comes first, of {len(kinds)}."]
        else:
            lines += [f"Reading package.json files comes at place {place} of {len(kinds)}: the time of what stands before it changed by more."]
        lines.append("")
    return lines


def package_json(lab, programs, versions, recordings, runs):
    rows = []
    for name, (title, _, _) in programs.items():
        reports = lab.report(recordings[name])
        serialized = lab.table(recordings[name], "serialization-callbacks")
        for version in versions:
            seen = traced(runs[name][version])
            files = [reports[run["run"] - 1]["package_json"] for run in seen]
            calls = [[c for c in reports[run["run"] - 1]["crossings"]["callbacks"] if is_reader(c["function"])] for run in seen]
            strings = [[s for s in of_runs(serialized, [run]) if is_reader(s["function"])] for run in seen]
            rows.append(
                [
                    title,
                    version,
                    count([sum(c["calls"] for c in of_run) for of_run in calls]),
                    statistics.median(sum(c["self_ns"] for c in of_run) for of_run in calls) / 1e6,
                    count([f["lookups"] for f in files]),
                    count([f["repeated_lookups"] for f in files]),
                    count([f["opens"] for f in files]),
                    count([f["opens_failed"] for f in files]),
                    count([f["reads"] for f in files]),
                    kilobytes([f["bytes"] for f in files]),
                    kilobytes([sum(s["bytes"] for s in of_run) for of_run in strings]),
                ]
            )
            rows[-1][3] = f"{rows[-1][3]:.1f}"
    head = ["program", "node ", "reader calls", "in them, ms", "lookups", "repeated", "opens", "failed", "reads", "kB read", "kB serialized"]
    return grid(head, rows)


def opens_plot(lab, programs, versions, recordings, runs):
    values = []
    for name, (title, _, _) in programs.items():
        reports = lab.report(recordings[name])
        for version in versions:
            files = reports[traced(runs[name][version])[0]["run"] - 1]["package_json"]
            for what, number in (("found", files["opens"] - files["opens_failed"]), ("not found", files["opens_failed"])):
                values.append({"program": title, "node": version, "what": what, "opens": number})
    return {
        "title": "Files called package.json that Node opened, or tried to",
        "data": {"values": values},
        "facet": {"column": {"field": "program", "type": "nominal", "title": None, "sort": [title for title, _, _ in programs.values()]}},
        "spec": {
            "width": 190,
            "height": 240,
            "mark": {"type": "bar", "size": 20},
            "encoding": {
                "x": {"field": "node", "type": "ordinal", "sort": versions, "title": None, "axis": {"labelAngle": -40}},
                "y": {"field": "opens", "type": "quantitative", "title": "open system calls"},
                "color": {"field": "what", "type": "nominal", "title": None, "scale": {"domain": ["found", "not found"], "range": ["#3b7dbd", "#e08a3c"]}, "legend": {"orient": "top"}},
                "order": {"field": "what"},
            },
        },
        "resolve": {"scale": {"y": "independent"}},
    }


def imports(lab, versions):
    """What one more package costs: the difference of two sizes of one program, divided by the packages between."""
    rows = []
    for kind, title in (("esm", "ES modules"), ("cjs", "CommonJS")):
        found = {}
        for size in (PACKAGES // 2, PACKAGES):
            folder = lab.scratch / f"{kind}-{size}"
            folder.mkdir()
            recording = lab.bench(f"loader-{kind}-{size}", versions, [packages.write(folder, size, kind)], None, None, cwd=folder, warmup=0)
            reports = lab.report(recording)
            for run in traced(lab.table(recording, "runs")):
                report = reports[run["run"] - 1]
                lookups, calls = report["package_json"], report["crossings"]
                readers = sum(c["calls"] for c in calls["callbacks"] if is_reader(c["function"]))
                found[run["labels"]["version"], size] = [calls["total"], readers, lookups["lookups"], lookups["opens"], lookups["opens_failed"], run["stats"]]
        for version in versions:
            small, large = found[version, PACKAGES // 2], found[version, PACKAGES]
            each = [(after - before) / (PACKAGES - PACKAGES // 2) for before, after in zip(small, large, strict=True)]
            rows.append([title, version, *(f"{value:.2f}".rstrip("0").rstrip(".") for value in each)])
    return grid(["program", "node ", "crossings", "reader calls", "lookups", "opens", "failed", "stats"], rows)


def scope(lab, versions, program):
    """Crossings below the JavaScript function getPackageScopeConfig, by what they call."""
    _, argv, folder = program
    modules = PACKAGES * packages.MODULES_PER_PACKAGE + 1
    rows = []
    for version in versions:
        kinds = {"url": 0, "reader": 0, "else": 0}
        recording = lab.trace(f"loader-scope-{version}", version, argv, cwd=folder)
        for frames, calls in lab.folded(recording, "crossings"):
            if not any(frame.startswith("getPackageScopeConfig ") for frame in frames):
                continue
            called = frames[-1].partition(" [")[0]
            kind = "url" if called.startswith("url.") else "reader" if is_reader(called.partition(".")[2]) else "else"
            kinds[kind] += calls
        total = sum(kinds.values())
        rows.append([version, *(f"{number:,}" for number in (total, *kinds.values())), f"{total / modules:.2f}"])
    return grid(["node", "crossings in getPackageScopeConfig", "URL parsed", "package.json reader", "else", "a module"], rows)
