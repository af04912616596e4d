// What is shown, kept in the fragment of the address: every selection can be linked to.
import { computed, signal } from "@preact/signals";

export const address = signal(new URLSearchParams(location.hash.slice(1)));

/** Browsers allow only so many changes of the address in a time, and some throw on more: it follows what is shown after a while. */
const WRITTEN_AFTER = 200;
let unwritten: string | null = null;
let timer = 0;
/** A step of our own, of which the browser will tell us. */
let step: string | null = null;

function write(): void {
  clearTimeout(timer);
  const text = unwritten;
  unwritten = null;
  if (text === null) return;
  try {
    history.replaceState(null, "", text);
  } catch {
    // Too many: the next change comes with this one.
  }
}

addEventListener("pagehide", write);
addEventListener("hashchange", () => {
  const own = step;
  step = null;
  if (own !== null && location.hash === own) return;
  clearTimeout(timer);
  unwritten = null;
  address.value = new URLSearchParams(location.hash.slice(1));
});

export function get(key: string, fallback = ""): string {
  return address.value.get(key) ?? fallback;
}

export function number(key: string): number | null {
  const text = address.value.get(key);
  if (text === null || text === "") return null;
  const value = Number(text);
  return Number.isFinite(value) ? value : null;
}

type Changes = Record<string, string | number | null>;

function changed(changes: Changes): URLSearchParams {
  const next = new URLSearchParams(address.value);
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === "") next.delete(key);
    else next.set(key, String(value));
  }
  return next;
}

/** The address of what is shown now, with changes. */
export function link(changes: Changes): string {
  return `#${changed(changes)}`;
}

/** Changes what is shown; `step`: as a step that the browser's back button takes back. */
export function set(changes: Changes, asStep = true): void {
  const next = changed(changes);
  const text = `#${next}`;
  if (text === `#${address.value}`) return;
  address.value = next;
  if (!asStep) {
    clearTimeout(timer);
    unwritten = text;
    timer = setTimeout(write, WRITTEN_AFTER);
    return;
  }
  // The step before is where one comes back to.
  write();
  if (location.hash === text) return;
  step = text;
  location.hash = text;
}

/** What belongs to one view only: left behind when another one is chosen. */
export const OF_A_VIEW = {
  table: null, sort: null, filter: null, metric: null, layout: null, by: null, at: null, frame: null, q: null,
  show: null, colour: null, from: null, until: null, module: null, figure: null, direction: null, repeated: null, range: null, sel: null, ev: null,
};

/** What names functions, modules and events by their place in the data of one run. */
export const OF_A_RUN = { time: null, from: null, until: null, range: null, at: null, sel: null, frame: null, module: null, ev: null };

/** Apart, so that the span is the same one as long as its text is. */
const spanText = computed(() => address.value.get("time") ?? "");

/** Selected span of time, ns since the exec. */
export const span = computed<[number, number] | null>(() => {
  const match = /^(-?\d+)\.\.(-?\d+)$/.exec(spanText.value);
  if (!match) return null;
  const from = Number(match[1]);
  const until = Number(match[2]);
  return until > from ? [from, until] : null;
});

export function select(from: number, until: number): void {
  set({ time: `${Math.round(from)}..${Math.round(until)}`, range: null });
}

const media = matchMedia("(prefers-color-scheme: dark)");
const system = signal(media.matches);
media.addEventListener("change", (event) => {
  system.value = event.matches;
});
const chosen = signal<"light" | "dark" | null>(null);

export const dark = computed(() => (chosen.value === null ? system.value : chosen.value === "dark"));

export function toggleTheme(): void {
  chosen.value = dark.value ? "light" : "dark";
  document.documentElement.dataset.theme = chosen.value;
}
