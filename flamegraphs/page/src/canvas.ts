// Canvases: sharp on every screen, drawn once a frame.
import { useEffect, useRef, useState } from "preact/hooks";

/** The width of an element, kept up to date. */
export function useWidth<T extends HTMLElement>(): [{ current: T | null }, number] {
  const element = useRef<T>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const of = element.current;
    if (!of) return;
    const measure = () => setWidth(Math.floor(of.clientWidth));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(of);
    return () => observer.disconnect();
  }, []);
  return [element, width];
}

/** Browsers draw nothing on a canvas that is larger: pixels of a side (Firefox), and of the whole (Safari has the fewest). */
const LONGEST_SIDE = 32_767;
const LARGEST_AREA = 67_108_864;

/** Sizes a canvas in CSS pixels; the context draws in these. */
export function prepare(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null {
  const ratio = Math.min(3, window.devicePixelRatio || 1, LONGEST_SIDE / Math.max(width, height, 1), Math.sqrt(LARGEST_AREA / Math.max(1, width * height)));
  const [w, h] = [Math.floor(width * ratio), Math.floor(height * ratio)];
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  if (!context) return null;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.textBaseline = "middle";
  return context;
}

export const FONT = '11.5px "Inter", system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';

const widths = new Map<string, number>();

/** The beginning of a text that fits, or its end if that tells more (paths). */
export function fitted(context: CanvasRenderingContext2D, text: string, room: number): string {
  if (room < 12) return "";
  const most = Math.floor(room / 4.2);
  const cut = text.length > most ? text.slice(0, most) : text;
  if (measured(context, text) <= room) return text;
  let [low, high] = [0, cut.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${cut.slice(0, middle)}…`).width <= room) low = middle;
    else high = middle - 1;
  }
  return low < 2 ? "" : `${cut.slice(0, low)}…`;
}

function measured(context: CanvasRenderingContext2D, text: string): number {
  let width = widths.get(text);
  if (width === undefined) {
    if (widths.size > 20_000) widths.clear();
    width = context.measureText(text).width;
    widths.set(text, width);
  }
  return width;
}
