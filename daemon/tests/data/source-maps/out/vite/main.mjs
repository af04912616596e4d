class Named {
  constructor(name) {
    this.name = name;
  }
  /** The pictures take two columns each. */
  check() {
    const pictures = "🔵🟦";
    console.assert(pictures.length === 4, "check");
    return this.name + pictures;
  }
}
class Circle extends Named {
  area(radius) {
    console.assert(this.check().length > 0, "circle");
    return Math.PI * radius ** 2;
  }
}
const circle = new Circle("circle");
function area(shape) {
  if (shape.kind === "circle") return circle.area(shape.radius);
  console.assert(shape.side > 0, "square");
  return shape.side ** 2;
}
function main(options) {
  const shapes = [
    { kind: "circle", radius: 2 },
    { kind: "square", side: 3 }
  ];
  console.assert(options.checked, "main");
  return shapes.map((shape) => area(shape)).reduce((sum, one) => sum + one, 0);
}
main({ checked: true });
export {
  main
};
//# sourceMappingURL=main.mjs.map
