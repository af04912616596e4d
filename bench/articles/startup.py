"""Node.js startup: time, memory and phases of `node -e 0`, from 16 to 26."""

import contextlib
import sqlite3
import statistics

import lab as laboratory
from lab import MIB, bare, count, difference, grid, middle, milliseconds, spread, traced

VERSIONS = ["16.20.0", "18.16.0", "18.20.8", "19.8.1", "20.0.0", "20.20.2", "21.7.3", "22.23.3", "23.9.0", "24.21.0", "25.9.0", "26.10.0"]
PROGRAM = ["-e", "0"]
# Node collects its garbage, then ends.
COLLECTED = ["--expose-gc", "-e", "gc()"]
PHASES = [
    ("process", "process: exec, linker, constructors"),
    ("platform", "platform: options, OpenSSL, threads"),
    ("v8", "V8: isolate, snapshot"),
    ("bootstrap", "bootstrap: Node's own JavaScript"),
    ("main_script", "main script"),
    ("loop", "event loop"),
    ("teardown", "teardown"),
]
SPANS = ["isolate snapshot", "context snapshot", "main environment", "start execution"]
PROGRAMS = laboratory.HERE.relative_to(laboratory.ROOT) / "programs"
WORKERS = 10


def measure(lab, page):
    versions = lab.versions(VERSIONS)
    recording = lab.bench("startup", versions, PROGRAM, 30, 10)
    runs = laboratory.by_version(lab.table(recording, "runs"))
    dirty = {version: memory(lab, version) for version in versions}
    reports = lab.report(recording)
    steps = [(base, head, lab.diff_of(f"{recording}@version={base}", f"{recording}@version={head}")) for base, head in zip(versions, versions[1:], strict=False)]
    cases = benchmark(lab, versions)

    some = next(iter(runs.values()))
    page.block("facts", lab.facts(versions, f"{len(bare(some))} runs without probes (times) and {len(traced(some))} with (counts, phases) of each, in random order; {len(next(iter(dirty.values())))} readings of memory."))
    page.block("time", *time_table(versions, runs))
    page.plot("time", box_plot("node -e 0: time of the process, without probes", "ms", [{"node": v, "ms": round(ms, 3)} for v in versions for ms in milliseconds(runs[v])], versions))
    page.block("memory", *memory_table(versions, dirty))
    page.plot("memory", memory_plot(versions, dirty))
    page.block("phases", *phases_table(versions, runs, reports))
    page.plot("phases", phases_plot(versions, runs, reports))
    page.block("counts", *counts_table(versions, runs, reports))
    page.block("caches", *caches_table(recording, versions, runs, reports))
    page.block("steps", *steps_text(steps, runs, reports))
    page.block("benchmark", *benchmark_table(versions, cases))


def memory(lab, version):
    """Private dirty memory in bytes, read by nodeprof at the end of warm-up runs."""
    readings = lab.runs(10)
    recording = lab.bench(f"startup-memory-{version}", [version], COLLECTED, readings, 0, warmup=readings)
    return [run["time"]["private_dirty_bytes"] for run in lab.table(recording, "runs") if run["time"]["private_dirty_bytes"] is not None]


def time_table(versions, runs):
    rows = []
    for version in versions:
        walls = milliseconds(runs[version])
        cpu = [(run["time"]["user_ns"] + run["time"]["system_ns"]) / 1e6 for run in bare(runs[version])]
        quartiles = statistics.quantiles(walls, n=4) if len(walls) > 1 else [walls[0]] * 3
        rows.append([version, spread(walls), middle(walls), f"{quartiles[0]:.1f} … {quartiles[2]:.1f}", f"{min(walls):.1f} … {max(walls):.1f}", middle(cpu)])
    return grid(["node", "mean ± σ, ms", "median, ms", "quartiles, ms", "range, ms", "CPU, ms"], rows)


def box_plot(title, unit, values, versions):
    box = {"type": "boxplot", "extent": 1.5, "size": 24, "color": "#3b7dbd", "median": {"color": "white"}, "outliers": {"color": "#888", "size": 12}}
    return by_version(title, unit, values, versions, box, {"zero": False})


def by_version(title, unit, values, versions, mark, scale):
    return {
        "title": title,
        "data": {"values": values},
        "width": 640,
        "height": 280,
        "mark": mark,
        "encoding": {
            "x": {"field": "node", "type": "ordinal", "sort": versions, "title": None, "axis": {"labelAngle": 0}},
            "y": {"field": unit, "type": "quantitative", "title": unit, "scale": scale},
        },
    }


def memory_table(versions, dirty):
    rows = []
    for version in versions:
        values = [value / MIB for value in dirty[version]]
        rows.append([version, spread(values, 2), f"{min(values):.2f} … {max(values):.2f}"])
    return grid(["node", "private dirty memory, MiB", "range, MiB"], rows)


def memory_plot(versions, dirty):
    """Bars from zero: the ranges are too narrow for boxes."""
    values = [{"node": version, "MiB": round(statistics.median(dirty[version]) / MIB, 3)} for version in versions]
    bar = {"type": "bar", "size": 30, "color": "#3b7dbd"}
    return by_version("node -e 0: private dirty memory after a garbage collection (medians)", "MiB", values, versions, bar, {"zero": True})


def phase_times(runs, reports, version, name):
    """Milliseconds of a phase in each run with probes."""
    times = []
    for run in traced(runs[version]):
        phases = reports[run["run"] - 1]["phases"]
        times.append(sum(phase["end_ns"] - phase["start_ns"] for phase in phases if phase["name"] == name) / 1e6)
    return times


def phases_table(versions, runs, reports):
    rows = [[version, *(middle(phase_times(runs, reports, version, name), 2) for name, _ in PHASES)] for version in versions]
    return grid(["node, ms", *(name.replace("_", " ") for name, _ in PHASES)], rows)


def phases_plot(versions, runs, reports):
    values = [
        {"node": version, "phase": title, "ms": round(statistics.median(phase_times(runs, reports, version, name)), 3), "order": order}
        for version in versions
        for order, (name, title) in enumerate(PHASES)
    ]
    colors = ["#9aa5b1", "#5b8db8", "#3b6ea5", "#e0a03c", "#6aa84f", "#b7d7a8", "#c27ba0"]
    return {
        "title": "node -e 0: phases, with probes (medians)",
        "data": {"values": values},
        "width": 640,
        "height": 300,
        "mark": {"type": "bar", "size": 30},
        "encoding": {
            "x": {"field": "node", "type": "ordinal", "sort": versions, "title": None, "axis": {"labelAngle": 0}},
            "y": {"field": "ms", "type": "quantitative", "title": "ms"},
            "color": {"field": "phase", "type": "nominal", "title": None, "sort": [title for _, title in PHASES], "scale": {"domain": [title for _, title in PHASES], "range": colors}},
            "order": {"field": "order"},
        },
    }


def counts_table(versions, runs, reports):
    rows = []
    for version in versions:
        seen = traced(runs[version])
        of = [reports[run["run"] - 1] for run in seen]
        rows.append(
            [
                version,
                count([run["crossings"] for run in seen]),
                count([r["crossings"]["by_kind"]["to_js"] for r in of]),
                count([run["serializations"] for run in seen]),
                count([run["stats"] for run in seen]),
                count([run["opens"] for run in seen]),
                count([run["reads"] for run in seen]),
                count([run["bytes_read"] for run in seen]),
            ]
        )
    return grid(["node", "crossings", "C++ → JavaScript", "values serialized", "stats", "opens", "reads", "bytes read"], rows)


def spans(recording, run):
    """Milliseconds of the spans of the main node process of a run, by name."""
    with contextlib.closing(sqlite3.connect(f"file:{recording}?mode=ro", uri=True)) as database:
        rows = database.execute(
            "SELECT name.text, sum(span.duration_ns) / 1e6 FROM span JOIN name ON name.id = span.name "
            "JOIN process ON process.id = span.process WHERE process.run = ? GROUP BY 1",
            (run["run"] - 1,),
        ).fetchall()
    return dict(rows)


def caches_table(recording, versions, runs, reports):
    rows = []
    for version in versions:
        seen = traced(runs[version])
        times = [spans(recording, run) for run in seen]
        scripts = [[s for s in reports[run["run"] - 1]["compile"]["scripts"] if s["unit"] == "builtin"] for run in seen]
        modules = [sum(s["compilations"] for s in of_run) for of_run in scripts]
        cached = [sum(s["compilations"] for s in of_run if s["cached"]) for of_run in scripts]
        compile_ms = [sum(s["self_ns"] or 0 for s in of_run) / 1e6 for of_run in scripts]
        rows.append([version, count(modules), count(cached), middle(compile_ms, 2), *(middle([t.get(name, 0.0) for t in times], 2) for name in SPANS)])
    return grid(["node", "built-in modules compiled", "from the code cache", "in them, ms", *(f"{name}, ms" for name in SPANS)], rows)


def steps_text(steps, runs, reports):
    lines = []
    for base, head, diff in steps:
        changes = []
        for name, _ in PHASES:
            before, after = (statistics.median(phase_times(runs, reports, version, name)) for version in (base, head))
            changes.append((abs(after - before), name.replace("_", " "), before, after))
        _, name, before, after = max(changes)
        lines += [f"### {base} → {head}", "", laboratory.plain(diff["verdict"]["sentence"]), ""]
        lines += [f"- Phase that changed most: *{name}*, {before:.2f} → {after:.2f} ms."]
        lines += [f"- Crossings {difference([r['crossings'] for r in traced(runs[base])], [r['crossings'] for r in traced(runs[head])])}, built-in modules {difference([builtins(reports[r['run'] - 1]) for r in traced(runs[base])], [builtins(reports[r['run'] - 1]) for r in traced(runs[head])])}."]
        lines += [f"- {laboratory.upper(cause['sentence'])}" for cause in diff["causes"][:4]]
        lines.append("")
    return lines


def builtins(report):
    return sum(script["compilations"] for script in report["compile"]["scripts"] if script["unit"] == "builtin")


def benchmark(lab, versions):
    """Node's benchmark misc/startup in own words: an empty script and one with built-ins, as process and in workers."""
    cases = {}
    for script in ("empty", "builtins"):
        path = str(PROGRAMS / f"{script}.js")
        cases["process", script] = lab.bench(f"startup-process-{script}", versions, [path], 15, None)
        cases["worker", script] = lab.bench(f"startup-worker-{script}", versions, [str(PROGRAMS / "worker.js"), path, WORKERS], 10, None)
    return {case: laboratory.by_version(lab.table(recording, "runs")) for case, recording in cases.items()}


def benchmark_table(versions, cases):
    rows = []
    for version in versions:
        row = [version]
        for (kind, _), runs in cases.items():
            each = WORKERS if kind == "worker" else 1
            row.append(f"{1000 * each / statistics.fmean(milliseconds(runs[version])):.1f}")
        rows.append(row)
    return grid(["node, starts a second", *(f"{kind}, {script}" for kind, script in cases)], rows)
