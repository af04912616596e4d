//! Embeds the page of the HTML report, if `make build` (or `npm run build` in `page/`) has made it.

use std::{env, fs, io, path::PathBuf};

fn main() -> io::Result<()> {
    // The folder is always there, so that a build without a page is not made anew each time.
    println!("cargo::rerun-if-changed=page/dist");
    let folder = env::var_os("OUT_DIR").map(PathBuf::from);
    let folder = folder.ok_or_else(|| io::Error::other("cargo sets OUT_DIR"))?;
    let page = match fs::read("page/dist/page.html") {
        Ok(page) => page,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    fs::write(folder.join("page.html"), page)
}
