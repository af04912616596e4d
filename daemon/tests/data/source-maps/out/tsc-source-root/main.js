"use strict";
Object.defineProperty(exports, "__esModule", { value: true });
exports.main = main;
const shapes_1 = require("./lib/shapes");
/** Types go away, and lines with them. */
function main(options) {
    const shapes = [
        { kind: 'circle', radius: 2 },
        { kind: 'square', side: 3 },
    ];
    console.assert(options.checked, 'main');
    return shapes.map((shape) => (0, shapes_1.area)(shape)).reduce((sum, one) => sum + one, 0);
}
main({ checked: true });
//# sourceMappingURL=main.js.map