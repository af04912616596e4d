// Work that would hold up a frame, done a slice a frame.
import { useEffect, useState } from "preact/hooks";

/** What a slice may take, ms. */
const SLICE = 10;
/** How much is done between two looks at the clock. */
export const STEP = 8192;

/** The result of a generator that yields now and then; null until it is there. */
export function useSliced<T>(make: (() => Generator<void, T>) | null, needs: readonly unknown[]): T | null {
  const [done, setDone] = useState<{ needs: readonly unknown[]; result: T } | null>(null);
  useEffect(() => {
    if (!make) return;
    const work = make();
    let next = 0;
    const slice = () => {
      const end = performance.now() + SLICE;
      for (;;) {
        const step = work.next();
        if (step.done) {
          setDone({ needs, result: step.value });
          return;
        }
        if (performance.now() >= end) break;
      }
      next = requestAnimationFrame(slice);
    };
    next = requestAnimationFrame(slice);
    return () => cancelAnimationFrame(next);
  }, needs);
  const current = done !== null && done.needs.length === needs.length && done.needs.every((one, index) => one === needs[index]);
  return current ? done.result : null;
}

/** Runs a generator to its end at once. */
export function whole<T>(work: Generator<void, T>): T {
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
  }
}

/** Does each piece of work when the browser has nothing else to do. */
export function whenIdle(pieces: (() => void)[]): void {
  const idle = (run: () => void) => ("requestIdleCallback" in window ? requestIdleCallback(run, { timeout: 2000 }) : setTimeout(run, 50));
  const next = () => {
    const piece = pieces.shift();
    if (!piece) return;
    piece();
    idle(next);
  };
  idle(next);
}
