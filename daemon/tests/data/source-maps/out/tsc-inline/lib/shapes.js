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
//# sourceMappingURL=data:application/json;base64,eyJ2ZXJzaW9uIjozLCJmaWxlIjoic2hhcGVzLmpzIiwic291cmNlUm9vdCI6IiIsInNvdXJjZXMiOlsiLi4vLi4vLi4vc3JjL2xpYi9zaGFwZXMudHMiXSwibmFtZXMiOltdLCJtYXBwaW5ncyI6Ijs7QUF1QkEsb0JBSUM7QUF2QkQsTUFBZSxLQUFLO0lBQ1c7SUFBN0IsWUFBNkIsSUFBWTtRQUFaLFNBQUksR0FBSixJQUFJLENBQVE7SUFBRyxDQUFDO0lBRTdDLDBDQUEwQztJQUNoQyxLQUFLO1FBQ2IsTUFBTSxRQUFRLEdBQVcsTUFBTSxDQUFDO1FBQUMsT0FBTyxDQUFDLE1BQU0sQ0FBQyxRQUFRLENBQUMsTUFBTSxLQUFLLENBQUMsRUFBRSxPQUFPLENBQUMsQ0FBQztRQUNoRixPQUFPLElBQUksQ0FBQyxJQUFJLEdBQUcsUUFBUSxDQUFDO0lBQzlCLENBQUM7Q0FDRjtBQUVELE1BQU0sTUFBTyxTQUFRLEtBQUs7SUFDakIsSUFBSSxDQUFDLE1BQWM7UUFDeEIsT0FBTyxDQUFDLE1BQU0sQ0FBQyxJQUFJLENBQUMsS0FBSyxFQUFFLENBQUMsTUFBTSxHQUFHLENBQUMsRUFBRSxRQUFRLENBQUMsQ0FBQztRQUNsRCxPQUFPLElBQUksQ0FBQyxFQUFFLEdBQUcsTUFBTSxJQUFJLENBQUMsQ0FBQztJQUMvQixDQUFDO0NBQ0Y7QUFFRCxNQUFNLE1BQU0sR0FBRyxJQUFJLE1BQU0sQ0FBQyxRQUFRLENBQUMsQ0FBQztBQUVwQyxTQUFnQixJQUFJLENBQUMsS0FBWTtJQUMvQixJQUFJLEtBQUssQ0FBQyxJQUFJLEtBQUssUUFBUTtRQUFFLE9BQU8sTUFBTSxDQUFDLElBQUksQ0FBQyxLQUFLLENBQUMsTUFBTSxDQUFDLENBQUM7SUFDOUQsT0FBTyxDQUFDLE1BQU0sQ0FBQyxLQUFLLENBQUMsSUFBSSxHQUFHLENBQUMsRUFBRSxRQUFRLENBQUMsQ0FBQztJQUN6QyxPQUFPLEtBQUssQ0FBQyxJQUFJLElBQUksQ0FBQyxDQUFDO0FBQ3pCLENBQUMifQ==