//! nodeprof.
fn main() {}
