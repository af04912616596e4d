// What is shown, kept in the fragment of the address: every selection can be linked to.
import { computed, signal } from "@preact/signals";

export const address = signal(new URLSearchParams(location.hash.slice(1)));

addEventListener("hashchange", () => {
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
export function set(changes: Changes, step = true): void {
  const next = changed(changes);
  const text = `#${next}`;
  if (text === `#${address.value}`) return;
  if (step) location.hash = text;
  else {
    history.replaceState(null, "", text);
  }
  address.value = next;
}

/** What belongs to one view only: left behind when another one is chosen. */
export const OF_A_VIEW = {
  table: null, sort: null, filter: null, metric: null, layout: null, by: null, at: null, frame: null, q: null,
  show: null, colour: null, from: null, until: null, module: null, figure: null, direction: null, repeated: null,
};

/** Selected span of time, ns since the exec. */
export const span = computed<[number, number] | null>(() => {
  const match = /^(-?\d+)\.\.(-?\d+)$/.exec(address.value.get("time") ?? "");
  if (!match) return null;
  const from = Number(match[1]);
  const until = Number(match[2]);
  return until > from ? [from, until] : null;
});

export function select(from: number, until: number): void {
  set({ time: `${Math.round(from)}..${Math.round(until)}` });
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
