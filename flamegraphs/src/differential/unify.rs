//! Which frames of different runs are the same.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use nodeprof_profile::diff::names::{Matching, Origin, Roots};

use crate::fold::{By, Folded, Frame, FrameKind};

/// Frames that all runs share.
pub(super) struct Unifier {
    frames: Vec<Frame>,
    /// By run and frame of the run: index of the shared frame.
    ids: Vec<Vec<u32>>,
}

/// What makes a frame the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    kind: FrameKind,
    /// Function, or name.
    name: String,
    /// The file as both sides know it.
    file: Option<String>,
}

/// Where functions of one key begin in a side.
type Places = BTreeSet<(u32, u32)>;
/// Where they begin in head, by where in base.
type Partners = BTreeMap<(u32, u32), (u32, u32)>;

impl Unifier {
    /// Of the runs of base and head; an origin for each run, and what its paths are seen from.
    pub(super) fn new(
        folded: &[Vec<Option<Folded>>; 2],
        origins: &[Origin],
        roots: &[Roots],
    ) -> Unifier {
        let runs = || {
            folded
                .iter()
                .enumerate()
                .flat_map(|(side, runs)| runs.iter().map(move |run| (side, run)))
        };
        // Every path of either side, as seen from the root.
        let mut paths: [BTreeSet<String>; 2] = Default::default();
        let mut seen: Vec<Vec<Option<String>>> = Vec::new();
        for (index, (side, run)) in runs().enumerate() {
            let frames = run.as_ref().map_or(&[][..], Folded::frames);
            let rooted = frames.iter().map(|frame| {
                let directory = &origins[index].directory;
                let path = path_of(frame, Some(directory).filter(|_| !by_phase(run)))?;
                Some(roots[index].rooted(&path))
            });
            let rooted: Vec<Option<String>> = rooted.collect();
            for path in rooted.iter().flatten() {
                if !paths[side].contains(path) {
                    paths[side].insert(path.clone());
                }
            }
            seen.push(rooted);
        }
        let matching = Matching::new(
            paths[0].iter().map(String::as_str),
            paths[1].iter().map(String::as_str),
        );
        let mut keys: Vec<Vec<Key>> = Vec::new();
        let mut places: HashMap<Key, [Places; 2]> = HashMap::new();
        for (index, (side, run)) in runs().enumerate() {
            let mut of_run = Vec::new();
            for (frame, rooted) in run
                .as_ref()
                .map_or(&[][..], Folded::frames)
                .iter()
                .zip(&seen[index])
            {
                let file = rooted.as_ref().map(|path| matching.name(path).to_owned());
                let key = key_of(frame, file, run.as_ref(), &roots[index]);
                if let Some(place) = place(frame) {
                    let known = places.entry(key.clone()).or_default();
                    known[side].insert(place);
                }
                of_run.push(key);
            }
            keys.push(of_run);
        }
        let partners: HashMap<&Key, Partners> = places
            .iter()
            .map(|(key, sides)| (key, partners(sides)))
            .collect();
        let mut unifier = Unifier {
            frames: Vec::new(),
            ids: Vec::new(),
        };
        let mut known: HashMap<(Key, Option<(u32, u32)>), u32> = HashMap::new();
        let mut of_head: Vec<bool> = Vec::new();
        for (index, (side, run)) in runs().enumerate() {
            let mut ids = Vec::new();
            for (frame, key) in run
                .as_ref()
                .map_or(&[][..], Folded::frames)
                .iter()
                .zip(&keys[index])
            {
                let place = place(frame).map(|place| {
                    let partner = partners.get(key).filter(|_| side == 0);
                    partner
                        .and_then(|partner| partner.get(&place))
                        .copied()
                        .unwrap_or(place)
                });
                let next = unifier.frames.len() as u32;
                let id = *known.entry((key.clone(), place)).or_insert(next);
                if id == next {
                    unifier.frames.push(frame.clone());
                    of_head.push(side == 1);
                } else if side == 1 && !of_head[id as usize] {
                    // Head's name, where both have it.
                    unifier.frames[id as usize] = frame.clone();
                    of_head[id as usize] = true;
                }
                ids.push(id);
            }
            unifier.ids.push(ids);
        }
        unifier
    }

    /// Shared frames by those of a run, counted over base and then head.
    pub(super) fn of_run(&self, run: usize) -> &[u32] {
        &self.ids[run]
    }

    pub(super) fn into_frames(self) -> Vec<Frame> {
        self.frames
    }
}

/// Whether files stand in their folders, which are seen from the root already.
fn by_phase(run: &Option<Folded>) -> bool {
    run.as_ref().is_some_and(|run| run.about.by == By::Phase)
}

/// The path that a frame has, if it is of a file; if there is a directory, from there.
fn path_of(frame: &Frame, directory: Option<&String>) -> Option<String> {
    if let Some(source) = &frame.source {
        // Wherever node lies: its functions are named in full. A module of WebAssembly is named by its bytes, which no other build has.
        let of_node = matches!(
            frame.kind,
            FrameKind::Native
                | FrameKind::WebAssembly
                | FrameKind::Compilation
                | FrameKind::GarbageCollection
                | FrameKind::Builtin
        );
        return source.file.clone().filter(|_| !of_node);
    }
    let is_path = matches!(frame.kind, FrameKind::File) && !frame.name.starts_with('(');
    is_path.then(|| match directory {
        Some(directory) if !frame.name.starts_with('/') => format!("{directory}/{}", frame.name),
        _ => frame.name.clone(),
    })
}

fn key_of(frame: &Frame, file: Option<String>, run: Option<&Folded>, roots: &Roots) -> Key {
    use nodeprof_profile::diff::names::generic;
    let name = match (&frame.source, frame.kind) {
        (Some(source), _) => source.function.clone(),
        (None, FrameKind::Process) => {
            let first = run.and_then(|run| run.nodes.first());
            let root = first
                .zip(run)
                .map(|(node, run)| &run.frames()[node.frame as usize]);
            match root == Some(frame) {
                // Whatever was compared with what.
                true => "the command".to_owned(),
                false => {
                    let words = frame
                        .name
                        .split(' ')
                        .map(|word| generic(&roots.rooted(word)));
                    words.collect::<Vec<_>>().join(" ")
                }
            }
        }
        (None, FrameKind::File) => String::new(),
        (None, FrameKind::Folder | FrameKind::Package) => generic(&frame.name),
        (None, _) => frame.name.clone(),
    };
    Key {
        kind: frame.kind,
        name: match &file {
            None if frame.source.is_none() && name.is_empty() => frame.name.clone(),
            _ => name,
        },
        file,
    }
}

fn place(frame: &Frame) -> Option<(u32, u32)> {
    let source = frame.source.as_ref()?;
    Some((source.line?, source.column.unwrap_or_default()))
}

/// Functions of one name in one file: which of base is which of head. A function alone is itself, wherever it begins; of several
/// those at the same place, and the others in order, if there are as many.
fn partners(sides: &[Places; 2]) -> Partners {
    let left =
        |of: usize| -> Vec<(u32, u32)> { sides[of].difference(&sides[1 - of]).copied().collect() };
    let (base, head) = (left(0), left(1));
    match base.len() == head.len() {
        true => base.into_iter().zip(head).collect(),
        false => BTreeMap::new(),
    }
}
