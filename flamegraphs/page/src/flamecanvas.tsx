// Draws a tree of stacks: outermost at the top, widths by value.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { FONT, fitted, prepare, useWidth } from "./canvas";
import { dark } from "./state";
import { follow, pathOf, type FlameTree, type TreeNode } from "./tree";

export const ROW = 18;
/** Narrower than this nothing is drawn, px. */
const LEAST = 0.6;
const MOST_ROWS = 400;

interface Box {
  x: number;
  width: number;
  row: number;
  node: TreeNode;
  /** It contains what is zoomed in. */
  above: boolean;
}

export interface Look {
  name: (frame: number) => string;
  colour: (node: TreeNode) => string;
  /** Drawn beside the name if there is room. */
  mark?: (node: TreeNode) => "new" | "gone" | "noise" | "";
}

interface Properties {
  tree: FlameTree;
  look: Look;
  label: string;
  found?: Uint8Array | null;
  focus: number[];
  selected: number[] | null;
  onFocus: (path: number[]) => void;
  onSelect: (path: number[]) => void;
  tooltip: (node: TreeNode) => string[];
  minimap?: boolean;
}

/** What making children may take in a frame, ms; the rest is made in the next ones. */
const BUDGET = 12;

function boxes(tree: FlameTree, focus: TreeNode, width: number): { list: Box[]; complete: boolean } {
  const list: Box[] = [];
  const end = performance.now() + BUDGET;
  let complete = true;
  const above: TreeNode[] = [];
  for (let at: TreeNode | null = focus.parent; at && at.frame >= 0; at = at.parent) above.push(at);
  above.reverse().forEach((node, row) => list.push({ x: 0, width, row, node, above: true }));
  const whole = focus.value;
  if (!(whole > 0)) return { list, complete };
  const scale = width / whole;
  const first = above.length - (focus.frame < 0 ? 1 : 0);
  const open: { node: TreeNode; x: number; row: number }[] = [{ node: focus, x: 0, row: first }];
  // Row after row, so that what is there first is the top.
  for (let next = 0; next < open.length; next++) {
    const { node, x, row } = open[next]!;
    const size = node.value * scale;
    if (node.frame >= 0) list.push({ x, width: size, row, node, above: false });
    if (row >= MOST_ROWS) continue;
    if (node.children === null && performance.now() > end) {
      complete = false;
      continue;
    }
    let at = x;
    for (const child of tree.children(node)) {
      const size = child.value * scale;
      // Largest first: the rest is narrower still.
      if (size < LEAST) break;
      open.push({ node: child, x: at, row: row + 1 });
      at += size;
    }
  }
  return { list, complete };
}

function same(a: number[] | null, b: number[]): boolean {
  return a !== null && a.length === b.length && a.every((frame, index) => frame === b[index]);
}

export function FlameCanvas(properties: Properties) {
  const { tree, look, label, found, focus, selected, onFocus, onSelect, tooltip } = properties;
  const [holder, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const map = useRef<HTMLCanvasElement>(null);
  const [hover, setHover] = useState<{ box: Box; x: number; y: number } | null>(null);
  const isDark = dark.value;
  const at = useMemo(() => follow(tree, focus), [tree, focus.join(".")]);
  const [turn, setTurn] = useState(0);
  const { list, complete } = useMemo(() => (width > 0 ? boxes(tree, at, width) : { list: [], complete: true }), [tree, at, width, turn]);
  useEffect(() => {
    if (complete) return;
    const next = requestAnimationFrame(() => setTurn((turn) => turn + 1));
    return () => cancelAnimationFrame(next);
  }, [complete, turn, tree, at]);
  const rows = useMemo(() => list.reduce((most, box) => Math.max(most, box.row + 1), 1), [list]);
  const index = useMemo(() => {
    const byRow: Box[][] = [];
    for (const box of list) (byRow[box.row] ??= []).push(box);
    for (const row of byRow) row?.sort((a, b) => a.x - b.x);
    return byRow;
  }, [list]);

  useEffect(() => {
    const context = canvas.current && prepare(canvas.current, width, rows * ROW + 1);
    if (!context) return;
    context.font = FONT;
    const ink = "#1b1b1f";
    for (const { x, width: size, row, node, above } of list) {
      const matches = found?.[node.frame] === 1;
      context.globalAlpha = above ? 0.5 : found && !matches ? 0.35 : isDark ? 0.88 : 1;
      context.fillStyle = look.colour(node);
      const gap = size > 3 ? 1 : 0;
      context.fillRect(x, row * ROW, Math.max(LEAST, size - gap), ROW - 1);
      context.globalAlpha = 1;
      const mark = look.mark?.(node) ?? "";
      if (mark === "new" || mark === "gone") {
        context.strokeStyle = mark === "new" ? "#b3470a" : "#14507f";
        context.lineWidth = 1.5;
        if (mark === "gone") context.setLineDash([3, 2]);
        if (size > 4) context.strokeRect(x + 1, row * ROW + 1, size - gap - 2, ROW - 3);
        context.setLineDash([]);
      }
      if (size > 24) {
        const text = fitted(context, look.name(node.frame), size - 8);
        if (text !== "") {
          context.fillStyle = ink;
          context.globalAlpha = above ? 0.75 : found && !matches ? 0.6 : 1;
          context.fillText(text, x + 4, row * ROW + ROW / 2);
          context.globalAlpha = 1;
        }
      }
      if (matches && size > 2) {
        context.fillStyle = "#d1006c";
        context.fillRect(x, row * ROW + ROW - 4, Math.max(LEAST, size - gap), 3);
      }
      if (selected && selected.length === node.depth + 1 && same(selected, pathOf(node))) {
        context.strokeStyle = isDark ? "#ffffff" : "#000000";
        context.lineWidth = 2;
        context.strokeRect(x + 1, row * ROW + 1, Math.max(2, size - 2), ROW - 3);
      }
    }
  }, [list, rows, width, look, found, isDark, selected?.join(".")]);

  const zoomed = at.frame >= 0;
  useEffect(() => {
    if (!zoomed || !map.current || width === 0) return;
    const all = boxes(tree, tree.root, width).list;
    const deepest = all.reduce((most, box) => Math.max(most, box.row + 1), 1);
    const height = 46;
    const row = Math.min(4, height / deepest);
    const context = prepare(map.current, width, height);
    if (!context) return;
    let [from, size] = [0, 0];
    for (const box of all) {
      context.globalAlpha = isDark ? 0.7 : 0.8;
      context.fillStyle = look.colour(box.node);
      context.fillRect(box.x, box.row * row, Math.max(LEAST, box.width - 0.3), Math.max(0.6, row - 0.3));
      if (box.node === at) [from, size] = [box.x, box.width];
    }
    context.globalAlpha = 1;
    context.fillStyle = isDark ? "rgba(0,0,0,.6)" : "rgba(255,255,255,.65)";
    context.fillRect(0, 0, from, height);
    context.fillRect(from + size, 0, width - from - size, height);
    context.strokeStyle = isDark ? "#fff" : "#000";
    context.strokeRect(from + 0.5, 0.5, Math.max(1, size - 1), height - 1);
  }, [zoomed, at, tree, width, look, isDark]);

  const hit = (event: MouseEvent): Box | null => {
    const frame = canvas.current!.getBoundingClientRect();
    const [x, y] = [event.clientX - frame.left, event.clientY - frame.top];
    const row = index[Math.floor(y / ROW)];
    if (!row) return null;
    let [low, high] = [0, row.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (row[middle]!.x <= x) low = middle;
      else high = middle - 1;
    }
    const box = row[low];
    return box && x >= box.x && x <= box.x + Math.max(1, box.width) ? box : null;
  };

  const keys = (event: KeyboardEvent) => {
    const here = selected ? follow(tree, selected) : at;
    const to = (node: TreeNode | undefined | null) => {
      if (!node || node.frame < 0) return;
      onSelect(pathOf(node));
      event.preventDefault();
    };
    const siblings = here.parent ? tree.children(here.parent) : [];
    const place = siblings.indexOf(here);
    switch (event.key) {
      case "ArrowDown":
        return to(tree.children(here)[0]);
      case "ArrowUp":
        return to(here.parent);
      case "ArrowRight":
        return to(siblings[place + 1]);
      case "ArrowLeft":
        return to(siblings[place - 1]);
      case "Enter":
        onFocus(pathOf(here));
        return event.preventDefault();
      case "Escape":
        onFocus(at.parent ? pathOf(at.parent) : []);
        return event.preventDefault();
      default:
    }
  };

  const current = selected ? follow(tree, selected) : null;
  return (
    <div class="flame" ref={holder}>
      {zoomed && properties.minimap !== false && <canvas class="minimap" ref={map} role="img" aria-label="The whole graph, with the part that is zoomed in" onClick={() => onFocus([])} />}
      <canvas
        ref={canvas}
        tabIndex={0}
        role="application"
        aria-roledescription="flame graph"
        aria-label={`${label}. Arrow keys move from frame to frame, Enter zooms in, Escape out. The table below has the same figures.`}
        onMouseMove={(event) => {
          const box = hit(event);
          setHover(box ? { box, x: event.clientX, y: event.clientY } : null);
        }}
        onMouseLeave={() => setHover(null)}
        onClick={(event) => {
          const box = hit(event);
          if (box) onSelect(pathOf(box.node));
        }}
        onDblClick={(event) => {
          const box = hit(event);
          if (box) onFocus(pathOf(box.node));
        }}
        onKeyDown={keys}
      />
      <span class="hidden" aria-live="polite">{current && current.frame >= 0 ? tooltip(current).join(", ") : ""}</span>
      {hover && <Tooltip x={hover.x} y={hover.y} lines={tooltip(hover.box.node)} />}
    </div>
  );
}

export function Tooltip({ x, y, lines }: { x: number; y: number; lines: string[] }) {
  const right = x > innerWidth - 460;
  const low = y > innerHeight - 180;
  return (
    <div
      class="tooltip"
      role="presentation"
      style={{
        left: right ? "auto" : `${x + 14}px`,
        right: right ? `${innerWidth - x + 14}px` : "auto",
        top: low ? "auto" : `${y + 16}px`,
        bottom: low ? `${innerHeight - y + 12}px` : "auto",
      }}
    >
      {lines.map((line, index) => (index === 0 ? <b key={index}>{line}</b> : <span key={index}>{line}</span>))}
    </div>
  );
}
