//! Colours of frames. Light enough for dark text on them in a light and in a dark scheme.

use crate::fold::FrameKind;

/// A kind's name in the legend, its hue in degrees and saturation in percent.
fn look(kind: FrameKind) -> (&'static str, u16, u8) {
    match kind {
        FrameKind::Process => ("process", 215, 14),
        FrameKind::Phase => ("phase", 40, 30),
        FrameKind::Thread => ("thread", 180, 16),
        FrameKind::JavaScript => ("JavaScript", 47, 92),
        FrameKind::NodeJavaScript => ("node's JavaScript", 92, 46),
        FrameKind::V8Builtin => ("V8 builtin", 168, 38),
        FrameKind::Native => ("C++", 212, 64),
        FrameKind::Compilation => ("compilation", 268, 52),
        FrameKind::GarbageCollection => ("garbage collection", 330, 66),
        FrameKind::WebAssembly => ("WebAssembly", 66, 74),
        FrameKind::AddOn => ("native add-on", 300, 40),
        FrameKind::Library => ("library", 232, 26),
        FrameKind::Kernel => ("kernel", 10, 74),
        FrameKind::Tracing => ("tracing itself", 32, 22),
        FrameKind::Wait => ("off the CPU", 192, 24),
        FrameKind::Unknown => ("unknown", 0, 0),
        FrameKind::Binding => ("binding", 210, 62),
        FrameKind::Callback => ("C++ callback", 192, 74),
        FrameKind::FastCallback => ("Fast API call", 140, 55),
        FrameKind::Getter => ("getter", 255, 58),
        FrameKind::Constructor => ("constructor", 320, 55),
        FrameKind::Serialization => ("serialization", 18, 82),
        FrameKind::Operation => ("operation", 205, 60),
        FrameKind::Folder => ("folder", 90, 22),
        FrameKind::Package => ("npm package", 275, 48),
        FrameKind::File => ("file", 130, 45),
        FrameKind::Builtin => ("built into node", 100, 55),
        FrameKind::Between => ("", 0, 0),
    }
}

/// A kind's name for people.
pub(crate) fn legend_name(kind: FrameKind) -> &'static str {
    look(kind).0
}

/// The middle of a kind's shades.
pub(super) fn legend_fill(kind: FrameKind) -> String {
    let (_, hue, saturation) = look(kind);
    from_hsl(f64::from(hue), f64::from(saturation) / 100.0, 0.72)
}

/// The shade of a frame.
pub(super) fn fill(kind: FrameKind, name: &str) -> String {
    let (_, hue, saturation) = look(kind);
    // FNV-1a: the shade must not change from one version of Rust to the next.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hue = f64::from(hue) + f64::from((hash >> 16) as u8) / 255.0 * 12.0 - 6.0;
    // What groups is darker than what it groups, so that rows can be told apart.
    let darkest = match kind {
        FrameKind::Binding | FrameKind::Operation => 0.62,
        _ => 0.69,
    };
    let lightness = darkest + f64::from((hash >> 32) as u8) / 255.0 * 0.12;
    from_hsl(hue, f64::from(saturation) / 100.0, lightness)
}

fn from_hsl(hue: f64, saturation: f64, lightness: f64) -> String {
    let chroma = (1.0 - (2.0 * lightness - 1.0).abs()) * saturation;
    let channel = |offset: f64| {
        let k = (offset + hue.rem_euclid(360.0) / 30.0) % 12.0;
        let value = lightness - chroma / 2.0 * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (value.clamp(0.0, 1.0) * 255.0).round() as u8
    };
    format!(
        "#{:02x}{:02x}{:02x}",
        channel(0.0),
        channel(8.0),
        channel(4.0)
    )
}
