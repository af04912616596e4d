//! Compiles the BPF programs, generates their skeletons, and takes the constants of `records.h` over into
//! Rust, so that the header stays the only definition of what crosses.

use std::{collections::BTreeSet, env, fmt::Write as _, fs, path::PathBuf};

/// The enumerators and the plain integer `#define`s of a C header as Rust constants.
fn constants(header: &str) -> String {
    let mut out = String::new();
    let text: String = strip_comments(header);
    let mut rest = text.as_str();
    while let Some(at) = rest.find("enum ") {
        rest = &rest[at + 5..];
        let (Some(open), Some(close)) = (rest.find('{'), rest.find('}')) else {
            break;
        };
        if rest[..open]
            .trim()
            .chars()
            .all(|c| c.is_alphanumeric() || c == '_')
        {
            let mut value = 0i64;
            for item in rest[open + 1..close]
                .split(',')
                .map(str::trim)
                .filter(|i| !i.is_empty())
            {
                let (name, given) = item.split_once('=').unwrap_or((item, ""));
                if let Ok(number) = given.trim().parse() {
                    value = number;
                }
                let _ = writeln!(out, "pub const {}: u32 = {value};", name.trim());
                value += 1;
            }
        }
        rest = &rest[close..];
    }
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if words.next() != Some("#define") {
            continue;
        }
        if let (Some(name), Some(value), None) = (words.next(), words.next(), words.next())
            && value.parse::<u32>().is_ok()
        {
            let _ = writeln!(out, "pub const {name}: u32 = {value};");
        }
    }
    out
}

/// Names of the kernel's structures in a header, without the kernel that they are of (`inode___6_6`), as a Rust constant.
fn kernel_types(header: &str) -> String {
    let text = strip_comments(header);
    let names: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("struct ")?.strip_suffix(" {"))
        .map(|name| name.split_once("___").map_or(name, |(name, _)| name))
        .collect();
    let names = Vec::from_iter(names);
    format!("pub const KERNEL_TYPES: &[&str] = &{names:?};\n")
}

fn strip_comments(source: &str) -> String {
    let mut out = String::new();
    let mut rest = source;
    while let Some(open) = rest.find("/*") {
        out.push_str(&rest[..open]);
        rest = rest[open..].split_once("*/").map_or("", |(_, after)| after);
    }
    out + rest
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    for object in ["maps", "probes", "samples", "tree"] {
        libbpf_cargo::SkeletonBuilder::new()
            .source(format!("programs/{object}.bpf.c"))
            .clang_args(["-Wall", "-Werror", "-Wno-unused-function", "-mcpu=v3"])
            .build_and_generate(out.join(format!("{object}.skel.rs")))?;
    }
    let types = kernel_types(&fs::read_to_string("programs/kernel.h")?);
    fs::write(
        out.join("constants.rs"),
        constants(&fs::read_to_string("programs/records.h")?) + &types,
    )?;
    println!("cargo:rerun-if-changed=programs");
    Ok(())
}
