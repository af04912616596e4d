//! Plans kept by build-id, so that a second trace of the same node does not read its symbols again.
//!
//! A file is `magic, layout, CRC-32 of the code to probe, length, CRC-32 of the rest, plan in postcard`. Anything unexpected about it, from a flipped bit
//! to a foreign owner, means: build anew, and say why. A cache can never be the reason that a trace fails.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::elf::{self, Outline};
use crate::error::PlanError;
use crate::plan::{AttachPlan, BuildId, PLAN_SCHEMA, Role};
use crate::resolve;

const MAGIC: &[u8; 8] = b"npplan\x00\x02";

/// Magic, layout, sum of the code, length, checksum.
const PREFIX: usize = 8 + 4 + 4 + 8 + 4;

/// Bytes of code that a place to probe is known by again: the longest instruction of x86-64 has 15.
const CODE_AT_A_PLACE: u64 = 16;

/// Plans take some 400 KB.
const LARGEST_PLAN: u64 = 64 << 20;

/// So many are kept in a folder.
const MOST_PLANS: usize = 64;

/// Changes with this crate's code and catalogue: see build.rs.
const FINGERPRINT: &str = env!("NODEPROF_PLAN_FINGERPRINT");

/// What the cache did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheOutcome {
    /// The plan came from the cache; no symbol was read.
    Hit,
    /// There was none yet; it was built and kept.
    Built,
    /// The kept one could not be used, for this reason; it was built and replaced.
    Rebuilt(String),
    /// It was built and could not be kept, for this reason.
    NotCached(String),
}

/// `$XDG_CACHE_HOME/nodeprof/plans` or `~/.cache/nodeprof/plans`; `None` without a home.
pub fn default_cache_folder() -> Option<PathBuf> {
    let from = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let base = from("XDG_CACHE_HOME").or_else(|| from("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("nodeprof").join("plans"))
}

impl AttachPlan {
    /// Takes the plan of the binary at `path` from the folder `cache` (by default [`default_cache_folder`]), or builds it
    /// and keeps it there.
    ///
    /// # Errors
    /// Only what [`AttachPlan::for_binary`] gives; an unusable cache is told in the [`CacheOutcome`].
    pub fn load_or_build(
        path: &Path,
        cache: Option<&Path>,
    ) -> Result<(Self, CacheOutcome), PlanError> {
        Self::load_or_build_of(path, None, cache)
    }

    /// The same of one file, by device and inode: what lies at the path may be another one by now.
    ///
    /// # Errors
    /// As [`AttachPlan::load_or_build`], and if it is another file.
    pub fn load_or_build_of(
        path: &Path,
        file: Option<(u64, u64)>,
        cache: Option<&Path>,
    ) -> Result<(Self, CacheOutcome), PlanError> {
        let data = elf::map(path)?;
        let found = (data.about().dev(), data.about().ino());
        if file.is_some_and(|wanted| wanted != found) {
            return Err(PlanError::Replaced {
                path: path.to_owned(),
            });
        }
        let outline = Outline::parse(path, &data)?;
        let Some(build_id) = outline.build_id() else {
            let reason = "the binary has no build-id".to_owned();
            return Ok((
                resolve::of_whole(path, &data)?,
                CacheOutcome::NotCached(reason),
            ));
        };
        let Some(folder) = cache.map(Path::to_owned).or_else(default_cache_folder) else {
            let reason = "neither XDG_CACHE_HOME nor HOME is set".to_owned();
            return Ok((
                resolve::of_whole(path, &data)?,
                CacheOutcome::NotCached(reason),
            ));
        };
        let layout = outline.layout();
        let folder = match folder_for(data.about()) {
            Some(name) => folder.join(name),
            None => folder,
        };
        let file = folder.join(file_name(&build_id, layout, data.can_be_mapped_again()));
        let damaged = match load(&file, layout, &build_id, &data) {
            Ok(Some(mut plan)) => {
                path.clone_into(&mut plan.binary.path);
                return Ok((plan, CacheOutcome::Hit));
            }
            Ok(None) => None,
            Err(reason) => Some(reason),
        };
        let plan = resolve::of_whole(path, &data)?;
        let outcome = match store(&plan, &folder, &file, (layout, sum_of_code(&plan, &data))) {
            Ok(()) => damaged.map_or(CacheOutcome::Built, CacheOutcome::Rebuilt),
            Err(error) => CacheOutcome::NotCached(format!("{}: {error}", folder.display())),
        };
        Ok((plan, outcome))
    }
}

/// Where plans of other users' binaries are kept: apart. A plan is found by what a binary says of itself, and decides where breakpoints are
/// written: so no binary can lead to a wrong plan for one that somebody else owns.
fn folder_for(metadata: &fs::Metadata) -> Option<String> {
    // SAFETY: geteuid has no arguments and cannot fail.
    let is_ours = metadata.uid() == 0 || metadata.uid() == unsafe { libc::geteuid() };
    match metadata.mode() & 0o022 {
        0 if is_ours => None,
        0 => Some(format!("user-{}", metadata.uid())),
        0o020 => Some(format!("user-{}-group-{}", metadata.uid(), metadata.gid())),
        _ => Some("everybody".to_owned()),
    }
}

/// A single executable application has the build-id of the node that it was made from, and other segments; a stripped copy of it has other symbols; and
/// where a file lies may decide what is safe to probe in it.
fn file_name(build_id: &BuildId, layout: u32, can_be_mapped_again: bool) -> String {
    let place = match can_be_mapped_again {
        true => "",
        false => "-apart",
    };
    format!("{}-{layout:08x}-{FINGERPRINT}{place}.plan", build_id.0)
}

/// Whether [`file_name`] gives such names, also of another version.
fn is_file_name(name: &str) -> bool {
    let hex = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let Some(name) = name.strip_suffix(".plan") else {
        return false;
    };
    let parts: Vec<&str> = name
        .strip_suffix("-apart")
        .unwrap_or(name)
        .split('-')
        .collect();
    matches!(parts.as_slice(), [build_id, layout, fingerprint]
        if hex(build_id) && hex(layout) && layout.len() == 8 && hex(fingerprint) && fingerprint.len() == 16)
}

/// `None` if there is no such file, the reason if it cannot be used.
fn load(
    file: &Path,
    layout: u32,
    build_id: &BuildId,
    binary: &[u8],
) -> Result<Option<AttachPlan>, String> {
    let mut opened = match File::open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let metadata = opened.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() || metadata.len() > LARGEST_PLAN {
        return Err("it is no plan file".to_owned());
    }
    if !is_trusted(&metadata) {
        return Err("others than you and root can write it".to_owned());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
    opened
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    let (plan, code) = decode(&bytes, layout)?;
    if plan.schema != PLAN_SCHEMA || plan.binary.build_id.as_ref() != Some(build_id) {
        return Err("it is the plan of another binary".to_owned());
    }
    if !is_consistent(&plan, binary.len() as u64) {
        return Err("it contradicts itself".to_owned());
    }
    // A breakpoint inside an instruction would end the program.
    if code != sum_of_code(&plan, binary) {
        return Err("the binary's code differs, though its build-id does not".to_owned());
    }
    Ok(Some(plan))
}

/// The plan and the sum of the code that it was made for.
fn decode(bytes: &[u8], layout: u32) -> Result<(AttachPlan, u32), String> {
    let damaged = || "it is damaged".to_owned();
    let (prefix, body) = bytes.split_at_checked(PREFIX).ok_or_else(damaged)?;
    let code = (prefix.get(12..16).and_then(|bytes| bytes.try_into().ok()))
        .map(u32::from_le_bytes)
        .ok_or_else(damaged)?;
    let expected = prefix_of(body, layout, code);
    if prefix.get(..8) != expected.get(..8) {
        return Err("it is no plan file".to_owned());
    }
    if prefix.get(8..12) != expected.get(8..12) {
        return Err("the binary's segments or its symbols differ".to_owned());
    }
    if prefix != expected {
        return Err(damaged());
    }
    let plan = postcard::from_bytes(body).map_err(|_| damaged())?;
    Ok((plan, code))
}

/// CRC-32 of the code at each place to probe: a build-id can be set by hand, and a file can be patched.
fn sum_of_code(plan: &AttachPlan, binary: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    for offset in plan.probes.iter().filter_map(|probe| probe.offset) {
        let end = offset.0.saturating_add(CODE_AT_A_PLACE);
        let within = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(binary.len());
        sum.update(
            binary
                .get(within(offset.0)..within(end))
                .unwrap_or_default(),
        );
    }
    sum.finalize()
}

fn prefix_of(body: &[u8], layout: u32, code: u32) -> [u8; PREFIX] {
    let mut prefix = [0; PREFIX];
    let parts = MAGIC
        .iter()
        .copied()
        .chain(layout.to_le_bytes())
        .chain(code.to_le_bytes())
        .chain((body.len() as u64).to_le_bytes())
        .chain(crc32fast::hash(body).to_le_bytes());
    for (place, byte) in prefix.iter_mut().zip(parts) {
        *place = byte;
    }
    prefix
}

/// A plan decides where root writes breakpoints: it must come from root or from the invoking user.
fn is_trusted(metadata: &fs::Metadata) -> bool {
    // SAFETY: geteuid has no arguments and cannot fail.
    let me = unsafe { libc::geteuid() };
    let owner = metadata.uid();
    let trusted = owner == me || owner == 0 || invoking_user().is_some_and(|(uid, _)| uid == owner);
    trusted && metadata.mode() & 0o022 == 0
}

/// Offsets inside the executable segments, indices inside the tables.
fn is_consistent(plan: &AttachPlan, binary_size: u64) -> bool {
    let segments = plan.segments.iter().all(|s| {
        s.offset
            .0
            .checked_add(s.size)
            .is_some_and(|end| end <= binary_size)
    });
    let probes = plan.probes.iter().all(|probe| {
        let place = probe.offset.is_none_or(|offset| {
            plan.segments
                .iter()
                .any(|s| offset.0 >= s.offset.0 && offset.0 - s.offset.0 < s.size)
        });
        let index = match probe.role {
            Role::FastEntry { callback }
            | Role::PropertyEntry { callback, .. }
            | Role::CallbackEntry { callback, .. } => (callback as usize) < plan.callbacks.len(),
            _ => true,
        };
        place && index
    });
    let sorted = plan.callbacks.is_sorted_by_key(|callback| callback.address);
    segments && probes && sorted
}

fn store(
    plan: &AttachPlan,
    folder: &Path,
    file: &Path,
    (layout, code): (u32, u32),
) -> std::io::Result<()> {
    make_folder(folder)?;
    let body = postcard::to_stdvec(plan).map_err(std::io::Error::other)?;
    // It would not be loaded either.
    if (PREFIX + body.len()) as u64 > LARGEST_PLAN {
        return Err(std::io::Error::other("the plan is too large"));
    }
    let mut temporary = tempfile::Builder::new()
        .prefix(".plan")
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(folder)?;
    temporary.write_all(&prefix_of(&body, layout, code))?;
    temporary.write_all(&body)?;
    give_to_invoking_user(temporary.as_file(), folder);
    temporary.persist(file).map_err(|error| error.error)?;
    forget_oldest(folder);
    Ok(())
}

/// Removes the plans of a folder that are older than the newest ones. One that cannot be removed stays.
fn forget_oldest(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut plans: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_file_name))
        .filter_map(|entry| {
            let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((metadata.modified().ok()?, entry.path()))
        })
        .collect();
    plans.sort_unstable();
    let old = plans.len().saturating_sub(MOST_PLANS);
    for (_, path) in plans.iter().take(old) {
        let _ = fs::remove_file(path);
    }
}

/// Creates the folder and its missing parents, as the cache specification wants them, for the user who will own them.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent() {
        make_folder(parent)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => {
            // Not what somebody put in its place meanwhile, be it a link.
            let made = File::options()
                .read(true)
                .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
                .open(folder)?;
            if let Some(parent) = folder.parent() {
                give_to_invoking_user(&made, parent);
            }
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Under sudo: what is written into a user's cache must belong to that user.
fn give_to_invoking_user(made: &File, parent: &Path) {
    let Some((uid, gid)) = invoking_user() else {
        return;
    };
    // SAFETY: geteuid has no arguments and cannot fail.
    let me = unsafe { libc::geteuid() };
    let is_ours = made.metadata().is_ok_and(|made| made.uid() == me);
    // Root's own cache stays root's: only a folder of that user passes its owner on.
    let in_users_folder = fs::metadata(parent).is_ok_and(|folder| folder.uid() == uid);
    if is_ours && in_users_folder {
        // A plan that stays root's is merely rebuilt by the user: no error.
        let _ = std::os::unix::fs::fchown(made, Some(uid), Some(gid));
    }
}

/// User and group of the one who called sudo; only root is told by it.
fn invoking_user() -> Option<(u32, u32)> {
    // SAFETY: geteuid has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return None;
    }
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    Some((number("SUDO_UID")?, number("SUDO_GID")?))
}
