//! temporary
use nodeprofd::recorder::*;
fn main() {
    let cmd: Vec<_> = std::env::args_os().skip(1).collect();
    let t0 = std::time::Instant::now();
    let mut o = TraceOptions::new(cmd);
    o.verify = std::env::var("VERIFY").is_ok();
    if std::env::var("COUNT").is_ok() {
        o.mode = Mode::Count;
    }
    let t = match trace(&o) {
        Ok(t) => t,
        Err(e) => {
            eprintln!("error: {e}");
            std::process::exit(125)
        }
    };
    let r = &t.recording;
    eprintln!(
        "total {:?} run {:?} overhead {:?}",
        t0.elapsed(),
        (r.runs[0].ended.0 - r.runs[0].started.0) as f64 / 1e6,
        r.overheads[0]
    );
    eprintln!(
        "crossings {} sums {} ser {} files {} lookups {} compiles {} spans {} procs {} names {}",
        r.crossings.len(),
        r.crossing_sums.iter().map(|s| s.calls).sum::<u64>(),
        r.serializations.len(),
        r.files.len(),
        r.lookups.len(),
        r.compilations.len(),
        r.spans.len(),
        r.processes.len(),
        r.names.len()
    );
    let mut k = [0; 5];
    for c in &r.crossings {
        k[c.kind as usize] += 1;
    }
    eprintln!(
        "kinds {k:?} unfinished {} verification {:?}",
        r.crossings.iter().filter(|c| c.unfinished).count(),
        t.verification
    );
    for l in &r.losses {
        if l.count > 0 {
            eprintln!("loss {} {}", l.kind, l.count);
        }
    }
    for f in &r.families {
        if f.state != "on" {
            eprintln!("family {f:?}");
        }
    }
    for m in &r.milestones {
        eprintln!(
            "  {} {:.3}",
            m.name,
            (m.at.0 as f64 - r.runs[0].started.0 as f64) / 1e6
        );
    }
    for p in &r.processes {
        eprintln!(
            "  proc {} {:?} node {:?} exit {:?}/{:?} user {:?} sys {:?} rss {:?} uss {:?}/{:?} {:?}",
            p.pid,
            p.execs
                .iter()
                .map(|e| String::from_utf8_lossy(&e.path).into_owned())
                .collect::<Vec<_>>(),
            p.node,
            p.exit_status,
            p.signal,
            p.user,
            p.system,
            p.max_rss_bytes,
            p.uss_loop_start_bytes,
            p.uss_exit_bytes,
            p.incomplete
        );
    }
    if std::env::var("SHOW").is_ok() {
        for c in r.compilations.iter().take(40) {
            eprintln!(
                "compile {:?} {} {:?} cached {}",
                c.unit,
                String::from_utf8_lossy(r.name(c.path)),
                c.duration,
                c.cached
            );
        }
        for c in r.lookups.iter().take(20) {
            eprintln!("lookup {}", String::from_utf8_lossy(r.name(c.path)));
        }
        for c in r.spans.iter() {
            eprintln!(
                "span {} {:?} {:.3}",
                String::from_utf8_lossy(r.name(c.name)),
                c.duration,
                (c.start.0 as f64 - r.runs[0].started.0 as f64) / 1e6
            );
        }
        for c in r.files.iter().take(30) {
            eprintln!(
                "file {:?} {} {}",
                c.operation,
                String::from_utf8_lossy(r.name(c.path)),
                c.result
            );
        }
        let mut by = std::collections::BTreeMap::<_, (u64, u64)>::new();
        for c in &r.crossings {
            let e = by
                .entry((c.kind, &r.callbacks[c.callback.0 as usize]))
                .or_default();
            e.0 += 1;
            e.1 += c.duration.unwrap_or_default().0;
        }
        for (k, v) in by {
            eprintln!(
                "{:?} {}.{} {} {}µs",
                k.0,
                k.1.binding,
                k.1.function,
                v.0,
                v.1 / 1000
            );
        }
        let mut by = std::collections::BTreeMap::<_, (u64, u64, u64)>::new();
        for c in &r.serializations {
            let e = by.entry(r.name(c.function)).or_default();
            e.0 += 1;
            e.1 += c.duration.unwrap_or_default().0;
            e.2 += c.bytes.unwrap_or(0);
        }
        for (k, v) in by {
            eprintln!(
                "ser {} {} {}µs {}B",
                String::from_utf8_lossy(k),
                v.0,
                v.1 / 1000,
                v.2
            );
        }
    }
    let s = t.child.wait().unwrap();
    std::process::exit(s.code().unwrap_or(1));
}
