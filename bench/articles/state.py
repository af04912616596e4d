"""State of Node.js Performance 2023: startup and require on 16, 18 and 20, with Welch's t-test."""

import contextlib
import sqlite3

import lab as laboratory
import modules
import startup
from lab import count, grid, traced

VERSIONS = ["16.20.0", "18.16.0", "20.0.0"]
# Modules that one process requires.
MODULES = 200
PROGRAMS = laboratory.HERE.relative_to(laboratory.ROOT) / "programs"
# Causes that are told beside a row.
CAUSES = 2


def measure(lab, page):
    versions = lab.versions(VERSIONS)
    steps = list(zip(versions, versions[1:], strict=False))
    cases = cases_of(lab)
    found = {}
    for base, head in steps:
        for name, (argv, cwd) in cases.items():
            recording = lab.compare(f"state-{base}-{head}-{len(found)}", base, head, argv, 30, 5, cwd=cwd, fixed=True)
            found[base, head, name] = (lab.diff(recording), lab.table(recording, "runs"), lab.report(recording))
    pairs = len(laboratory.bare(next(iter(found.values()))[1])) // 2
    probed = len(traced(next(iter(found.values()))[1])) // 2
    page.block("facts", lab.facts(versions, f"{pairs} pairs without probes (times) and {probed} runs with (counts, causes) of each side and row."))
    for block, wanted in (("startup", "startup"), ("module", "module")):
        lines = []
        for base, head in steps:
            rows = [row(name, *found[base, head, name]) for name in cases if name.startswith(wanted)]
            lines += [f"### {base} → {head}", "", *grid(["benchmark", "confidence ", "improvement", "accuracy (*)", "(**)", "(***)", "nodeprof: crossings", "stats", "opens", "built-ins compiled", "causes "], rows), ""]
        page.block(block, *lines)
    page.plot("improvement", improvement_plot(found))
    page.block("workers", *workers(lab, versions))


def cases_of(lab):
    cases = {}
    for script in ("empty", "builtins"):
        path = str(PROGRAMS / f"{script}.js")
        cases[f"startup mode='process' script='{script}'"] = ([path], laboratory.ROOT)
        cases[f"startup mode='worker' script='{script}'"] = ([str(PROGRAMS / "worker.js"), path, startup.WORKERS], laboratory.ROOT)
    for kind in modules.KINDS:
        folder = lab.scratch / kind
        folder.mkdir()
        cases[f"module require type='{kind}' n={MODULES}"] = ([modules.write(folder, kind, MODULES)], folder)
    return cases


def row(name, diff, runs, reports):
    """As node-benchmark-compare prints it, with what nodeprof knows besides."""
    rate = diff["rate"]
    accuracy = [f"±{value:.2f}%" for value in rate["plus_minus_percent"]]
    sides = [[r for r in traced(runs) if r["labels"]["name"] == side] for side in ("base", "head")]
    of = [[(r["crossings"], r["stats"], r["opens"], startup.builtins(reports[r["run"] - 1])) for r in side] for side in sides]
    counts = [f"{count([one[index] for one in of[0]])} → {count([one[index] for one in of[1]])}" for index in range(4)]
    causes = " ".join(laboratory.upper(cause["sentence"]) for cause in diff["causes"][:CAUSES]) or "–"
    return [name, laboratory.plain(rate["stars"]), f"{rate['percent']:.2f} %", *accuracy, *counts, causes]


def improvement_plot(found):
    values = []
    for (base, head, name), (diff, _, _) in found.items():
        rate = diff["rate"]
        half = rate["plus_minus_percent"][0]
        values.append({"benchmark": name, "step": f"{base} → {head}", "percent": round(rate["percent"], 2), "low": round(rate["percent"] - half, 2), "high": round(rate["percent"] + half, 2)})
    y = {"field": "benchmark", "type": "nominal", "title": None, "sort": None, "axis": {"labelLimit": 600}}
    color = {"field": "step", "type": "nominal", "title": None, "sort": None, "scale": {"range": ["#3b7dbd", "#e08a3c"]}, "legend": {"orient": "top"}}
    return {
        "title": "Starts a second: improvement in percent, with 95 % intervals",
        "data": {"values": values},
        "width": 460,
        "height": {"step": 18},
        "layer": [
            {"mark": {"type": "bar"}, "encoding": {"y": y, "yOffset": {"field": "step", "sort": None}, "x": {"field": "percent", "type": "quantitative", "title": "%"}, "color": color}},
            {"mark": {"type": "rule", "color": "#333"}, "encoding": {"y": y, "yOffset": {"field": "step", "sort": None}, "x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}}},
        ],
    }


def workers(lab, versions):
    """Threads that run JavaScript, from nodeprof's recordings: the main thread and workers, one traced run a version."""
    rows = []
    for version in versions:
        for script in ("empty", "builtins"):
            recording = lab.trace(f"state-worker-{version}-{script}", version, [str(PROGRAMS / "worker.js"), str(PROGRAMS / f"{script}.js"), startup.WORKERS])
            milestones, crossings, compiled = threads(recording)
            loaded = [m["loop_exit"] - m["environment"] for m in milestones if "loop_exit" in m and "environment" in m]
            rows.append([version, script, len(milestones), laboratory.middle([ns / 1e6 for ns in loaded], 2) if loaded else "–", f"{sum(crossings) / max(1, len(crossings)):,.1f}", f"{sum(compiled) / max(1, len(compiled)):,.1f}"])
    return grid(["node", "script ", "workers seen", "environment to end of loop, ms (median)", "crossings a worker", "built-in modules compiled a worker"], rows)


def threads(recording):
    """Of the workers of a recording: their milestones in ns, crossings and built-in modules compiled."""
    with contextlib.closing(sqlite3.connect(f"file:{recording}?mode=ro", uri=True)) as database:
        of = {}
        for thread, name, at in database.execute("SELECT m.thread, m.name, m.at_ns FROM milestone m JOIN process p ON p.id = m.process WHERE m.thread <> p.pid"):
            of.setdefault(thread, {})[name] = at
        crossings = dict(database.execute("SELECT thread, count(*) FROM crossing JOIN crossing_kind k ON k.id = crossing.kind WHERE k.name <> 'to_js' GROUP BY thread"))
        compiled = dict(database.execute("SELECT thread, count(*) FROM compilation JOIN compilation_unit u ON u.id = compilation.unit WHERE u.name = 'builtin' GROUP BY thread"))
    return list(of.values()), [crossings.get(thread, 0) for thread in of], [compiled.get(thread, 0) for thread in of]
