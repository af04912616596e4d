"""Reducing the cost of string serialization: what a parsed URL costs in strings and calls, from 18 to 26."""

import statistics

import lab as laboratory
from lab import bare, grid, milliseconds, traced

VERSIONS = ["18.16.0", "19.6.1", "19.7.0", "19.8.1", "20.0.0", "20.20.2", "22.23.3", "24.21.0", "26.10.0"]
# The step of the article: ten strings became one.
BEFORE, AFTER = "19.8.1", "20.0.0"
URLS = 100_000
PROGRAM = laboratory.HERE / "programs/urls.js"
# Samples a second of the runs for CPU time: one in 0.2 ms.
HZ = 5000
# Of the flame graphs: narrow frames are left out, so that they are small files.
PICTURE = ["--of", "cpu", "--thread", "main", "--from", "bootstrap_complete", "--least", "0.4"]
# What makes strings for JavaScript, calls it, and reads strings of it, by a function on the stack.
MAKES = ("v8::String::NewFromUtf8", "v8::String::NewFromOneByte", "v8::String::NewFromTwoByte")
CALLS = ("node::MakeCallback", "node::InternalMakeCallback", "v8::Function::Call")
READS = ("node::Utf8Value::Utf8Value", "v8::String::Utf8Value::Utf8Value", "node::TwoByteValue::TwoByteValue", "v8::String::WriteUtf8", "v8::String::WriteUtf8V2")
PARSER = "ada::"


def measure(lab, page):
    versions = lab.versions(VERSIONS)
    before, after = lab.step(VERSIONS, BEFORE, AFTER)
    script = str(PROGRAM.relative_to(laboratory.ROOT))
    counts = [0, URLS]
    times, calls = {}, {}
    for urls in counts:
        times[urls] = laboratory.by_version(lab.table(lab.bench(f"serialization-{urls}", versions, [script, urls], 20, 0), "runs"))
    for version in versions:
        for urls in counts:
            extra = ["--families", "phases,crossings,serialization", "--freq", 0]
            calls[version, urls] = counted(lab, lab.trace(f"serialization-{version}-{urls}", version, [script, urls], extra=extra))
    cpu = {}
    for version in versions:
        cpu[version] = lab.trace(f"serialization-cpu-{version}", version, [script, URLS], extra=["--families", "phases,cpu", "--freq", HZ])

    runs = len(bare(next(iter(times[URLS].values()))))
    page.block("facts", lab.facts(versions, f"{runs} runs without probes (times) of each, in random order, and one with (counts), of {URLS:,} URLs and of none; one with CPU samples only, {HZ:,} a second."))
    page.block("time", *time_table(versions, times))
    page.plot("time", time_plot(versions, times))
    page.block("counts", *counts_table(versions, calls))
    page.plot("strings", strings_plot(versions, calls))
    page.block("shares", *shares_table(lab, versions, cpu))
    page.block("step", *step(before, after, times, calls))
    page.flame("cpu-diff", "--diff", cpu[before], cpu[after], *PICTURE, "--title", f"CPU time of {URLS:,} URLs: {before} → {after}")
    # The two of the step have names that the page's text can link to, whatever versions they are.
    names = {version: {before: "before", after: "after"}.get(version, version) for version in versions}
    for version, name in names.items():
        page.flame(f"cpu-{name}", cpu[version], *PICTURE, "--title", f"CPU time of {URLS:,} URLs on {version}")
    page.block("graphs", *(f"- [{version}](pictures/serialization-cpu-{name}.svg)" for version, name in names.items()))


def counted(lab, recording):
    report = lab.report(recording)[0]
    functions = {f["function"]: f for f in report["serialization"]["functions"]}
    made = [f for name, f in functions.items() if name.startswith("String::New")]
    read = [f for name, f in functions.items() if name.endswith("Value")]
    return {
        "crossings": report["crossings"]["total"],
        "to_js": report["crossings"]["by_kind"]["to_js"],
        "made": sum(f["calls"] for f in made),
        "made_bytes": sum(f["bytes"] for f in made),
        "made_ns": sum(f["self_ns"] for f in made),
        "read": sum(f["calls"] for f in read),
        "read_bytes": sum(f["bytes"] for f in read),
    }


def a_url(calls, version, what):
    """Of one URL: the difference of both counts."""
    return (calls[version, URLS][what] - calls[version, 0][what]) / URLS


def microseconds(times, version):
    """A URL: the difference of the medians."""
    of = {urls: statistics.median(milliseconds(times[urls][version])) for urls in times}
    return (of[URLS] - of[0]) / URLS * 1000


def time_table(versions, times):
    rows = []
    for version in versions:
        none, all_ = (milliseconds(times[urls][version]) for urls in (0, URLS))
        rows.append([version, laboratory.spread(none), laboratory.spread(all_), laboratory.middle(all_), f"{microseconds(times, version):.2f}"])
    return grid(["node", "without URLs, ms", f"{URLS:,} URLs, ms", "median, ms", "µs a URL"], rows)


def time_plot(versions, times):
    values = [{"node": version, "ms": round(ms, 2)} for version in versions for ms in milliseconds(times[URLS][version])]
    return {
        "title": f"Process that parses {URLS:,} URLs, without probes",
        "data": {"values": values},
        "width": 560,
        "height": 260,
        "mark": {"type": "boxplot", "extent": 1.5, "size": 26, "color": "#3b7dbd", "median": {"color": "white"}, "outliers": {"color": "#888", "size": 12}},
        "encoding": {
            "x": {"field": "node", "type": "ordinal", "sort": versions, "title": None, "axis": {"labelAngle": 0}},
            "y": {"field": "ms", "type": "quantitative", "title": "ms", "scale": {"zero": True}},
        },
    }


def counts_table(versions, calls):
    rows = []
    for version in versions:
        one = {what: a_url(calls, version, what) for what in calls[version, 0]}
        rows.append(
            [
                version,
                *(f"{one[what]:.2f}" for what in ("crossings", "to_js", "made")),
                f"{one['made_bytes']:.1f}",
                f"{one['made_ns'] / 1000:.2f}",
                f"{one['read']:.2f}",
                f"{one['read_bytes']:.1f}",
            ]
        )
    return grid(["node", "crossings", "C++ → JavaScript", "strings made", "bytes", "in them, µs", "strings read", "bytes"], rows)


def strings_plot(versions, calls):
    values = [
        {"node": version, "what": what, "number": round(a_url(calls, version, key), 3)}
        for version in versions
        for what, key in (("strings made for JavaScript", "made"), ("calls of JavaScript by C++", "to_js"))
    ]
    return {
        "title": "Of one URL",
        "data": {"values": values},
        "width": 560,
        "height": 220,
        "mark": {"type": "bar"},
        "encoding": {
            "x": {"field": "node", "type": "ordinal", "sort": versions, "title": None, "axis": {"labelAngle": 0}},
            "xOffset": {"field": "what", "sort": None},
            "y": {"field": "number", "type": "quantitative", "title": "calls a URL"},
            "color": {"field": "what", "type": "nominal", "title": None, "sort": None, "scale": {"range": ["#3b7dbd", "#e08a3c"]}, "legend": {"orient": "top"}},
        },
    }


def shares_table(lab, versions, cpu):
    rows = []
    for version in versions:
        total, found = 0, dict.fromkeys(("makes", "calls", "reads", "parser"), 0)
        for frames, ns in lab.folded(cpu[version], "cpu", "--thread", "main", "--from", "bootstrap_complete"):
            total += ns
            # Within the binding of URLs: the innermost of the four kinds has the sample.
            first = next((index for index, frame in enumerate(frames) if frame.startswith("node::url::")), len(frames))
            for frame in reversed(frames[first:]):
                kind = kind_of(frame)
                if kind:
                    found[kind] += ns
                    break
        rows.append([version, f"{total / 1e6:.0f}", *(f"{share / total * 100:.0f} %" if total else "" for share in found.values()), f"{(total - sum(found.values())) / total * 100:.0f} %"])
    return grid(["node", "CPU time, ms", "making strings", "calling JavaScript", "reading strings", "Ada parses", "all else"], rows)


def kind_of(frame):
    name = frame.removesuffix(" [inlined]")
    for kind, names in (("makes", MAKES), ("calls", CALLS), ("reads", READS)):
        if name in names:
            return kind
    return "parser" if name.startswith(PARSER) else None


def step(before, after, times, calls):
    """The article's step by counts and by time."""
    rows = []
    for what, key, digits in (("crossings", "crossings", 2), ("calls of JavaScript by C++", "to_js", 2), ("strings made", "made", 2), ("bytes of them", "made_bytes", 1), ("strings read", "read", 2)):
        one, two = a_url(calls, before, key), a_url(calls, after, key)
        rows.append([what, f"{one:.{digits}f}", f"{two:.{digits}f}", f"{two - one:+.{digits}f}".replace("-", "−")])
    one, two = microseconds(times, before), microseconds(times, after)
    rows.append(["time, µs, without probes", f"{one:.2f}", f"{two:.2f}", f"{two - one:+.2f}".replace("-", "−")])
    return grid(["of one URL", before, after, "change"], rows)
