//! Tests of times on a virtual machine whose host takes the CPUs away.

/// Tries of a test that the host disturbs.
const TRIES: usize = 6;
/// Below this part of the CPU time taken away, a failure is one.
const CALM: f64 = 0.005;
/// A failure of a test that the host never took more than this from is one, however often it was tried.
const BEARABLE: f64 = 0.02;

/// Runs a test of times or rates again if it fails while the host of this virtual machine took the CPUs away (`steal` of proc(5), which no
/// clock in here can tell from the program's own time), up to [`TRIES`] times. A failure without that is one at once, and so is the same
/// failure in each try, to the digit, which no disturbance makes; where each try was much disturbed, the test is skipped, and says so.
pub fn undisturbed(test: impl Fn()) {
    let mut calmest: Option<(f64, Box<dyn std::any::Any + Send>)> = None;
    let mut said = std::collections::BTreeSet::new();
    for number in 0..TRIES {
        let (before, began) = (stolen(), std::time::Instant::now());
        let Err(failure) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&test)) else {
            return;
        };
        let share = (stolen() - before) / began.elapsed().as_secs_f64() / processors();
        eprintln!("{:.1}% of the CPU time was stolen meanwhile", share * 100.0);
        if share < CALM {
            std::panic::resume_unwind(failure);
        }
        let words = words(failure.as_ref());
        // Words without a figure may be of a time, too.
        let told = words.contains(|c: char| c.is_ascii_digit());
        said.insert(((!told).then_some(number), words.to_owned()));
        if calmest.as_ref().is_none_or(|(least, _)| share < *least) {
            calmest = Some((share, failure));
        }
    }
    let (share, failure) = calmest.expect("tries");
    if share < BEARABLE || said.len() == 1 {
        std::panic::resume_unwind(failure);
    }
    let percent = share * 100.0;
    println!(
        "skipped: the host took {percent:.1}% of the CPU time or more in each of {TRIES} tries; the last failures are above"
    );
}

/// What a test failed with.
fn words(failure: &(dyn std::any::Any + Send)) -> &str {
    let text = failure.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| failure.downcast_ref::<&str>().copied())
        .unwrap_or_default()
}

/// The CPUs that `/proc/stat` sums up, which are those of the machine, not of this process.
fn processors() -> f64 {
    let all = std::fs::read_to_string("/proc/stat").expect("/proc/stat");
    let lines = all
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with("cpu"));
    lines.count().max(1) as f64
}

/// CPU time that the host of this virtual machine took from it since it was started, seconds of one CPU.
pub fn stolen() -> f64 {
    let all = std::fs::read_to_string("/proc/stat").expect("/proc/stat");
    let steal = all.split_ascii_whitespace().nth(8);
    let ticks: f64 = steal.and_then(|n| n.parse().ok()).expect("steal");
    // USER_HZ: 100 on every architecture that Node is built for.
    ticks / 100.0
}
