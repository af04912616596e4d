var __defProp = Object.defineProperty;
var __getOwnPropDesc = Object.getOwnPropertyDescriptor;
var __getOwnPropNames = Object.getOwnPropertyNames;
var __hasOwnProp = Object.prototype.hasOwnProperty;
var __export = (target, all) => {
  for (var name in all)
    __defProp(target, name, { get: all[name], enumerable: true });
};
var __copyProps = (to, from, except, desc) => {
  if (from && typeof from === "object" || typeof from === "function") {
    for (let key of __getOwnPropNames(from))
      if (!__hasOwnProp.call(to, key) && key !== except)
        __defProp(to, key, { get: () => from[key], enumerable: !(desc = __getOwnPropDesc(from, key)) || desc.enumerable });
  }
  return to;
};
var __toCommonJS = (mod) => __copyProps(__defProp({}, "__esModule", { value: true }), mod);

// src/main.ts
var main_exports = {};
__export(main_exports, {
  main: () => main
});
module.exports = __toCommonJS(main_exports);

// src/lib/shapes.ts
var Named = class {
  constructor(name) {
    this.name = name;
  }
  /** The pictures take two columns each. */
  check() {
    const pictures = "\u{1F535}\u{1F7E6}";
    console.assert(pictures.length === 4, "check");
    return this.name + pictures;
  }
};
var Circle = class extends Named {
  area(radius) {
    console.assert(this.check().length > 0, "circle");
    return Math.PI * radius ** 2;
  }
};
var circle = new Circle("circle");
function area(shape) {
  if (shape.kind === "circle") return circle.area(shape.radius);
  console.assert(shape.side > 0, "square");
  return shape.side ** 2;
}

// src/main.ts
function main(options) {
  const shapes = [
    { kind: "circle", radius: 2 },
    { kind: "square", side: 3 }
  ];
  console.assert(options.checked, "main");
  return shapes.map((shape) => area(shape)).reduce((sum, one) => sum + one, 0);
}
main({ checked: true });
// Annotate the CommonJS export names for ESM import in node:
0 && (module.exports = {
  main
});
//# sourceMappingURL=main.js.map
