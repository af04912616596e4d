import { area } from './lib/shapes';
import type { Shape } from './lib/shapes';

interface Options {
  readonly checked: boolean;
}

/** Types go away, and lines with them. */
export function main(options: Options): number {
  const shapes: Shape[] = [
    { kind: 'circle', radius: 2 },
    { kind: 'square', side: 3 },
  ];
  console.assert(options.checked, 'main');
  return shapes.map((shape) => area(shape)).reduce((sum, one) => sum + one, 0);
}

main({ checked: true });
