export type Shape =
  | { readonly kind: 'circle'; readonly radius: number }
  | { readonly kind: 'square'; readonly side: number };

abstract class Named {
  constructor(private readonly name: string) {}

  /** The pictures take two columns each. */
  protected check(): string {
    const pictures: string = '🔵🟦'; console.assert(pictures.length === 4, 'check');
    return this.name + pictures;
  }
}

class Circle extends Named {
  public area(radius: number): number {
    console.assert(this.check().length > 0, 'circle');
    return Math.PI * radius ** 2;
  }
}

const circle = new Circle('circle');

export function area(shape: Shape): number {
  if (shape.kind === 'circle') return circle.area(shape.radius);
  console.assert(shape.side > 0, 'square');
  return shape.side ** 2;
}
