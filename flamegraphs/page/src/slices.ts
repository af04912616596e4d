// Work that would hold up a frame, done a slice a frame.
import { useEffect, useMemo, useState } from "preact/hooks";

/** What a slice may take, ms. */
const SLICE = 10;
/** How much is done between two looks at the clock. */
export const STEP = 8192;

/** Goes on with work until it is done or the time is up. */
function slice<T>(work: Generator<void, T>): { result: T } | null {
  const end = performance.now() + SLICE;
  for (;;) {
    const step = work.next();
    if (step.done) return { result: step.value };
    if (performance.now() >= end) return null;
  }
}

/** The result of a generator that yields now and then; null until it is there. What one slice is enough for is there at once. */
export function useSliced<T>(make: (() => Generator<void, T>) | null, needs: readonly unknown[]): T | null {
  const [done, setDone] = useState<{ work: unknown; result: T } | null>(null);
  const begun = useMemo(() => {
    if (!make) return null;
    const work = make();
    return { work, first: slice(work) };
  }, needs);
  useEffect(() => {
    if (!begun || begun.first) return;
    const { work } = begun;
    let next = 0;
    const go = () => {
      const end = slice(work);
      if (end) setDone({ work, result: end.result });
      else next = requestAnimationFrame(go);
    };
    next = requestAnimationFrame(go);
    return () => cancelAnimationFrame(next);
  }, [begun]);
  if (!begun) return null;
  if (begun.first) return begun.first.result;
  return done !== null && done.work === begun.work ? done.result : null;
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
