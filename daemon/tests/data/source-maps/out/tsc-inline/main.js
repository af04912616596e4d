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
//# sourceMappingURL=data:application/json;base64,eyJ2ZXJzaW9uIjozLCJmaWxlIjoibWFpbi5qcyIsInNvdXJjZVJvb3QiOiIiLCJzb3VyY2VzIjpbIi4uLy4uL3NyYy9tYWluLnRzIl0sIm5hbWVzIjpbXSwibWFwcGluZ3MiOiI7O0FBUUEsb0JBT0M7QUFmRCx5Q0FBb0M7QUFPcEMsMENBQTBDO0FBQzFDLFNBQWdCLElBQUksQ0FBQyxPQUFnQjtJQUNuQyxNQUFNLE1BQU0sR0FBWTtRQUN0QixFQUFFLElBQUksRUFBRSxRQUFRLEVBQUUsTUFBTSxFQUFFLENBQUMsRUFBRTtRQUM3QixFQUFFLElBQUksRUFBRSxRQUFRLEVBQUUsSUFBSSxFQUFFLENBQUMsRUFBRTtLQUM1QixDQUFDO0lBQ0YsT0FBTyxDQUFDLE1BQU0sQ0FBQyxPQUFPLENBQUMsT0FBTyxFQUFFLE1BQU0sQ0FBQyxDQUFDO0lBQ3hDLE9BQU8sTUFBTSxDQUFDLEdBQUcsQ0FBQyxDQUFDLEtBQUssRUFBRSxFQUFFLENBQUMsSUFBQSxhQUFJLEVBQUMsS0FBSyxDQUFDLENBQUMsQ0FBQyxNQUFNLENBQUMsQ0FBQyxHQUFHLEVBQUUsR0FBRyxFQUFFLEVBQUUsQ0FBQyxHQUFHLEdBQUcsR0FBRyxFQUFFLENBQUMsQ0FBQyxDQUFDO0FBQy9FLENBQUM7QUFFRCxJQUFJLENBQUMsRUFBRSxPQUFPLEVBQUUsSUFBSSxFQUFFLENBQUMsQ0FBQyJ9