//! How much of a program's code is its own: the kernel copies each page that it writes a breakpoint into, and leaves copies behind.

/// Prints how many kB of its own code are its own copy of what the file has: at its start, and when its probes are gone.
pub const COPIES_TWICE: &str = r#"
const fs = require('fs');
function copies() {
  let own = false, kilobytes = 0;
  for (const line of fs.readFileSync('/proc/self/smaps', 'utf8').split('\n')) {
    if (/^[0-9a-f]+-[0-9a-f]+ /.test(line)) own = / r-xp /.test(line) && line.endsWith(process.execPath);
    else if (own && line.startsWith('Anonymous:')) kilobytes += parseInt(line.slice(10));
  }
  return kilobytes;
}
console.log(copies());
setTimeout(() => console.log(copies()), 1500);
"#;

/// What [`COPIES_TWICE`] printed is of a program that was probed, and has its probes no longer.
pub fn assert_shared_again(told: &str) {
    let told: Vec<u64> = told.lines().map(|kb| kb.parse().expect(kb)).collect();
    let [at_start, later] = told[..] else {
        panic!("{told:?}");
    };
    assert!(at_start >= 100, "it was not probed: {at_start} kB");
    // 100 kB and more before the kernel was helped. Of what it moves to another list on another processor meanwhile a page may stay.
    assert!(later <= 16, "{at_start} kB, then {later} kB");
}
