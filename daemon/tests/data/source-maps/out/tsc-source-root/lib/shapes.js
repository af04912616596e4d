"use strict";
Object.defineProperty(exports, "__esModule", { value: true });
exports.area = area;
class Named {
    name;
    constructor(name) {
        this.name = name;
    }
    /** The pictures take two columns each. */
    check() {
        const pictures = '🔵🟦';
        console.assert(pictures.length === 4, 'check');
        return this.name + pictures;
    }
}
class Circle extends Named {
    area(radius) {
        console.assert(this.check().length > 0, 'circle');
        return Math.PI * radius ** 2;
    }
}
const circle = new Circle('circle');
function area(shape) {
    if (shape.kind === 'circle')
        return circle.area(shape.radius);
    console.assert(shape.side > 0, 'square');
    return shape.side ** 2;
}
//# sourceMappingURL=shapes.js.map