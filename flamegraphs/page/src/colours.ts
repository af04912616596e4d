// Colours that colour-blind people tell apart: Paul Tol's "light" scheme for boxes with text, "bright" for lines.
// https://personal.sron.nl/~pault/

const LIGHT = {
  blue: "#77aadd",
  cyan: "#99ddff",
  mint: "#44bb99",
  pear: "#bbcc33",
  olive: "#c5be4a",
  yellow: "#eedd88",
  orange: "#ee8866",
  pink: "#ffaabb",
  grey: "#d5d5d5",
  sand: "#d9cfae",
};

export const KIND: Record<string, string> = {
  javascript: LIGHT.yellow,
  node: LIGHT.pear,
  builtin: LIGHT.mint,
  native: LIGHT.blue,
  compilation: LIGHT.cyan,
  gc: LIGHT.pink,
  wasm: "#e5c3a0",
  addon: LIGHT.olive,
  library: LIGHT.grey,
  kernel: LIGHT.orange,
  tracing: LIGHT.sand,
  wait: "#c3c9d6",
  unknown: LIGHT.grey,
  callback: LIGHT.cyan,
  fast: LIGHT.mint,
  getter: "#a9c4ee",
  construct: LIGHT.pink,
  serialization: LIGHT.orange,
  operation: LIGHT.blue,
  file: LIGHT.mint,
  package: LIGHT.yellow,
  binding: LIGHT.blue,
  process: LIGHT.grey,
  phase: LIGHT.sand,
  thread: LIGHT.grey,
  folder: LIGHT.pear,
  module: LIGHT.pear,
};

const WHEEL = [LIGHT.blue, LIGHT.orange, LIGHT.mint, LIGHT.yellow, LIGHT.pink, LIGHT.pear, LIGHT.cyan, LIGHT.olive, "#c8a8dd", "#e5c3a0"];

/** The same name always has the same colour. */
export function byName(name: string): string {
  let hash = 0x811c9dc5;
  for (let index = 0; index < name.length; index++) {
    hash = Math.imul(hash ^ name.charCodeAt(index), 0x01000193) >>> 0;
  }
  return WHEEL[(hash >>> 8) % WHEEL.length]!;
}

export const PHASE: Record<string, string> = {
  before_exec: "#d5d5d5",
  process: "#c3c9d6",
  platform: "#99ddff",
  v8: "#77aadd",
  bootstrap: "#44bb99",
  main_script: "#eedd88",
  loop: "#ee8866",
  teardown: "#ffaabb",
  after_exec: "#d5d5d5",
};

export function phaseColour(name: string): string {
  return PHASE[name] ?? PHASE[name.split("+").at(-1) ?? ""] ?? "#d5d5d5";
}

/** From less (blue) over none (grey) to more (orange): a scale that all tell apart. */
export function change(share: number): string {
  const strength = Math.min(1, Math.abs(share));
  const [r, g, b] = share > 0 ? [217, 95, 14] : [33, 113, 181];
  const mix = (channel: number) => Math.round(226 + (channel - 226) * (0.25 + 0.75 * strength));
  return `rgb(${mix(r)}, ${mix(g)}, ${mix(b)})`;
}
