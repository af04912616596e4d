/******/ (() => { // webpackBootstrap
/******/ 	"use strict";
/******/ 	var __webpack_modules__ = ([
/* 0 */,
/* 1 */
/***/ ((__unused_webpack_module, __webpack_exports__, __webpack_require__) => {

__webpack_require__.r(__webpack_exports__);
/* harmony export */ __webpack_require__.d(__webpack_exports__, {
/* harmony export */   area: () => (/* binding */ area)
/* harmony export */ });
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


/***/ })
/******/ 	]);
/************************************************************************/
/******/ 	// The module cache
/******/ 	var __webpack_module_cache__ = {};
/******/ 	
/******/ 	// The require function
/******/ 	function __webpack_require__(moduleId) {
/******/ 		// Check if module is in cache
/******/ 		var cachedModule = __webpack_module_cache__[moduleId];
/******/ 		if (cachedModule !== undefined) {
/******/ 			return cachedModule.exports;
/******/ 		}
/******/ 		// Create a new module (and put it into the cache)
/******/ 		var module = __webpack_module_cache__[moduleId] = {
/******/ 			// no module.id needed
/******/ 			// no module.loaded needed
/******/ 			exports: {}
/******/ 		};
/******/ 	
/******/ 		// Execute the module function
/******/ 		__webpack_modules__[moduleId](module, module.exports, __webpack_require__);
/******/ 	
/******/ 		// Return the exports of the module
/******/ 		return module.exports;
/******/ 	}
/******/ 	
/************************************************************************/
/******/ 	/* webpack/runtime/define property getters */
/******/ 	(() => {
/******/ 		// define getter functions for harmony exports
/******/ 		__webpack_require__.d = (exports, definition) => {
/******/ 			for(var key in definition) {
/******/ 				if(__webpack_require__.o(definition, key) && !__webpack_require__.o(exports, key)) {
/******/ 					Object.defineProperty(exports, key, { enumerable: true, get: definition[key] });
/******/ 				}
/******/ 			}
/******/ 		};
/******/ 	})();
/******/ 	
/******/ 	/* webpack/runtime/hasOwnProperty shorthand */
/******/ 	(() => {
/******/ 		__webpack_require__.o = (obj, prop) => (Object.prototype.hasOwnProperty.call(obj, prop))
/******/ 	})();
/******/ 	
/******/ 	/* webpack/runtime/make namespace object */
/******/ 	(() => {
/******/ 		// define __esModule on exports
/******/ 		__webpack_require__.r = (exports) => {
/******/ 			if(typeof Symbol !== 'undefined' && Symbol.toStringTag) {
/******/ 				Object.defineProperty(exports, Symbol.toStringTag, { value: 'Module' });
/******/ 			}
/******/ 			Object.defineProperty(exports, '__esModule', { value: true });
/******/ 		};
/******/ 	})();
/******/ 	
/************************************************************************/
var __webpack_exports__ = {};
// This entry needs to be wrapped in an IIFE because it needs to be isolated against other modules in the chunk.
(() => {
__webpack_require__.r(__webpack_exports__);
/* harmony export */ __webpack_require__.d(__webpack_exports__, {
/* harmony export */   main: () => (/* binding */ main)
/* harmony export */ });
/* harmony import */ var _lib_shapes__WEBPACK_IMPORTED_MODULE_0__ = __webpack_require__(1);

/** Types go away, and lines with them. */
function main(options) {
    const shapes = [
        { kind: 'circle', radius: 2 },
        { kind: 'square', side: 3 },
    ];
    console.assert(options.checked, 'main');
    return shapes.map((shape) => (0,_lib_shapes__WEBPACK_IMPORTED_MODULE_0__.area)(shape)).reduce((sum, one) => sum + one, 0);
}
main({ checked: true });

})();

/******/ })()
;
//# sourceMappingURL=data:application/json;charset=utf-8;base64,eyJ2ZXJzaW9uIjozLCJmaWxlIjoibWFpbi5qcyIsIm1hcHBpbmdzIjoiOzs7Ozs7Ozs7OztBQUlBO0FBQ0E7QUFBQTtBQUFBO0FBQUE7QUFFQTtBQUNBO0FBQ0E7QUFBQTtBQUNBO0FBQ0E7QUFDQTtBQUVBO0FBQ0E7QUFDQTtBQUNBO0FBQ0E7QUFDQTtBQUVBO0FBRUE7QUFDQTtBQUFBO0FBQ0E7QUFDQTtBQUNBOzs7Ozs7QUMzQkE7QUFDQTtBQUNBO0FBQ0E7QUFDQTtBQUNBO0FBQ0E7QUFDQTtBQUNBO0FBQ0E7QUFDQTtBQUNBO0FBQ0E7QUFDQTtBQUNBO0FBQ0E7QUFDQTtBQUNBO0FBQ0E7QUFDQTtBQUNBO0FBQ0E7QUFDQTtBQUNBOzs7O0FDdkJBO0FBQ0E7QUFDQTtBQUNBO0FBQ0E7QUFDQTtBQUNBO0FBQ0E7Ozs7O0FDUEE7Ozs7O0FDQUE7QUFDQTtBQUNBO0FBQ0E7QUFDQTtBQUNBO0FBQ0E7Ozs7Ozs7Ozs7OztBQ05BO0FBT0E7QUFDQTtBQUNBO0FBQ0E7QUFDQTtBQUNBO0FBQ0E7QUFDQTtBQUNBO0FBRUEiLCJzb3VyY2VzIjpbIndlYnBhY2s6Ly9zb3VyY2UtbWFwcy8uL3NyYy9saWIvc2hhcGVzLnRzIiwid2VicGFjazovL3NvdXJjZS1tYXBzL3dlYnBhY2svYm9vdHN0cmFwIiwid2VicGFjazovL3NvdXJjZS1tYXBzL3dlYnBhY2svcnVudGltZS9kZWZpbmUgcHJvcGVydHkgZ2V0dGVycyIsIndlYnBhY2s6Ly9zb3VyY2UtbWFwcy93ZWJwYWNrL3J1bnRpbWUvaGFzT3duUHJvcGVydHkgc2hvcnRoYW5kIiwid2VicGFjazovL3NvdXJjZS1tYXBzL3dlYnBhY2svcnVudGltZS9tYWtlIG5hbWVzcGFjZSBvYmplY3QiLCJ3ZWJwYWNrOi8vc291cmNlLW1hcHMvLi9zcmMvbWFpbi50cyJdLCJzb3VyY2VzQ29udGVudCI6WyJleHBvcnQgdHlwZSBTaGFwZSA9XG4gIHwgeyByZWFkb25seSBraW5kOiAnY2lyY2xlJzsgcmVhZG9ubHkgcmFkaXVzOiBudW1iZXIgfVxuICB8IHsgcmVhZG9ubHkga2luZDogJ3NxdWFyZSc7IHJlYWRvbmx5IHNpZGU6IG51bWJlciB9O1xuXG5hYnN0cmFjdCBjbGFzcyBOYW1lZCB7XG4gIGNvbnN0cnVjdG9yKHByaXZhdGUgcmVhZG9ubHkgbmFtZTogc3RyaW5nKSB7fVxuXG4gIC8qKiBUaGUgcGljdHVyZXMgdGFrZSB0d28gY29sdW1ucyBlYWNoLiAqL1xuICBwcm90ZWN0ZWQgY2hlY2soKTogc3RyaW5nIHtcbiAgICBjb25zdCBwaWN0dXJlczogc3RyaW5nID0gJ/CflLXwn5+mJzsgY29uc29sZS5hc3NlcnQocGljdHVyZXMubGVuZ3RoID09PSA0LCAnY2hlY2snKTtcbiAgICByZXR1cm4gdGhpcy5uYW1lICsgcGljdHVyZXM7XG4gIH1cbn1cblxuY2xhc3MgQ2lyY2xlIGV4dGVuZHMgTmFtZWQge1xuICBwdWJsaWMgYXJlYShyYWRpdXM6IG51bWJlcik6IG51bWJlciB7XG4gICAgY29uc29sZS5hc3NlcnQodGhpcy5jaGVjaygpLmxlbmd0aCA+IDAsICdjaXJjbGUnKTtcbiAgICByZXR1cm4gTWF0aC5QSSAqIHJhZGl1cyAqKiAyO1xuICB9XG59XG5cbmNvbnN0IGNpcmNsZSA9IG5ldyBDaXJjbGUoJ2NpcmNsZScpO1xuXG5leHBvcnQgZnVuY3Rpb24gYXJlYShzaGFwZTogU2hhcGUpOiBudW1iZXIge1xuICBpZiAoc2hhcGUua2luZCA9PT0gJ2NpcmNsZScpIHJldHVybiBjaXJjbGUuYXJlYShzaGFwZS5yYWRpdXMpO1xuICBjb25zb2xlLmFzc2VydChzaGFwZS5zaWRlID4gMCwgJ3NxdWFyZScpO1xuICByZXR1cm4gc2hhcGUuc2lkZSAqKiAyO1xufVxuIiwiLy8gVGhlIG1vZHVsZSBjYWNoZVxudmFyIF9fd2VicGFja19tb2R1bGVfY2FjaGVfXyA9IHt9O1xuXG4vLyBUaGUgcmVxdWlyZSBmdW5jdGlvblxuZnVuY3Rpb24gX193ZWJwYWNrX3JlcXVpcmVfXyhtb2R1bGVJZCkge1xuXHQvLyBDaGVjayBpZiBtb2R1bGUgaXMgaW4gY2FjaGVcblx0dmFyIGNhY2hlZE1vZHVsZSA9IF9fd2VicGFja19tb2R1bGVfY2FjaGVfX1ttb2R1bGVJZF07XG5cdGlmIChjYWNoZWRNb2R1bGUgIT09IHVuZGVmaW5lZCkge1xuXHRcdHJldHVybiBjYWNoZWRNb2R1bGUuZXhwb3J0cztcblx0fVxuXHQvLyBDcmVhdGUgYSBuZXcgbW9kdWxlIChhbmQgcHV0IGl0IGludG8gdGhlIGNhY2hlKVxuXHR2YXIgbW9kdWxlID0gX193ZWJwYWNrX21vZHVsZV9jYWNoZV9fW21vZHVsZUlkXSA9IHtcblx0XHQvLyBubyBtb2R1bGUuaWQgbmVlZGVkXG5cdFx0Ly8gbm8gbW9kdWxlLmxvYWRlZCBuZWVkZWRcblx0XHRleHBvcnRzOiB7fVxuXHR9O1xuXG5cdC8vIEV4ZWN1dGUgdGhlIG1vZHVsZSBmdW5jdGlvblxuXHRfX3dlYnBhY2tfbW9kdWxlc19fW21vZHVsZUlkXShtb2R1bGUsIG1vZHVsZS5leHBvcnRzLCBfX3dlYnBhY2tfcmVxdWlyZV9fKTtcblxuXHQvLyBSZXR1cm4gdGhlIGV4cG9ydHMgb2YgdGhlIG1vZHVsZVxuXHRyZXR1cm4gbW9kdWxlLmV4cG9ydHM7XG59XG5cbiIsIi8vIGRlZmluZSBnZXR0ZXIgZnVuY3Rpb25zIGZvciBoYXJtb255IGV4cG9ydHNcbl9fd2VicGFja19yZXF1aXJlX18uZCA9IChleHBvcnRzLCBkZWZpbml0aW9uKSA9PiB7XG5cdGZvcih2YXIga2V5IGluIGRlZmluaXRpb24pIHtcblx0XHRpZihfX3dlYnBhY2tfcmVxdWlyZV9fLm8oZGVmaW5pdGlvbiwga2V5KSAmJiAhX193ZWJwYWNrX3JlcXVpcmVfXy5vKGV4cG9ydHMsIGtleSkpIHtcblx0XHRcdE9iamVjdC5kZWZpbmVQcm9wZXJ0eShleHBvcnRzLCBrZXksIHsgZW51bWVyYWJsZTogdHJ1ZSwgZ2V0OiBkZWZpbml0aW9uW2tleV0gfSk7XG5cdFx0fVxuXHR9XG59OyIsIl9fd2VicGFja19yZXF1aXJlX18ubyA9IChvYmosIHByb3ApID0+IChPYmplY3QucHJvdG90eXBlLmhhc093blByb3BlcnR5LmNhbGwob2JqLCBwcm9wKSkiLCIvLyBkZWZpbmUgX19lc01vZHVsZSBvbiBleHBvcnRzXG5fX3dlYnBhY2tfcmVxdWlyZV9fLnIgPSAoZXhwb3J0cykgPT4ge1xuXHRpZih0eXBlb2YgU3ltYm9sICE9PSAndW5kZWZpbmVkJyAmJiBTeW1ib2wudG9TdHJpbmdUYWcpIHtcblx0XHRPYmplY3QuZGVmaW5lUHJvcGVydHkoZXhwb3J0cywgU3ltYm9sLnRvU3RyaW5nVGFnLCB7IHZhbHVlOiAnTW9kdWxlJyB9KTtcblx0fVxuXHRPYmplY3QuZGVmaW5lUHJvcGVydHkoZXhwb3J0cywgJ19fZXNNb2R1bGUnLCB7IHZhbHVlOiB0cnVlIH0pO1xufTsiLCJpbXBvcnQgeyBhcmVhIH0gZnJvbSAnLi9saWIvc2hhcGVzJztcbmltcG9ydCB0eXBlIHsgU2hhcGUgfSBmcm9tICcuL2xpYi9zaGFwZXMnO1xuXG5pbnRlcmZhY2UgT3B0aW9ucyB7XG4gIHJlYWRvbmx5IGNoZWNrZWQ6IGJvb2xlYW47XG59XG5cbi8qKiBUeXBlcyBnbyBhd2F5LCBhbmQgbGluZXMgd2l0aCB0aGVtLiAqL1xuZXhwb3J0IGZ1bmN0aW9uIG1haW4ob3B0aW9uczogT3B0aW9ucyk6IG51bWJlciB7XG4gIGNvbnN0IHNoYXBlczogU2hhcGVbXSA9IFtcbiAgICB7IGtpbmQ6ICdjaXJjbGUnLCByYWRpdXM6IDIgfSxcbiAgICB7IGtpbmQ6ICdzcXVhcmUnLCBzaWRlOiAzIH0sXG4gIF07XG4gIGNvbnNvbGUuYXNzZXJ0KG9wdGlvbnMuY2hlY2tlZCwgJ21haW4nKTtcbiAgcmV0dXJuIHNoYXBlcy5tYXAoKHNoYXBlKSA9PiBhcmVhKHNoYXBlKSkucmVkdWNlKChzdW0sIG9uZSkgPT4gc3VtICsgb25lLCAwKTtcbn1cblxubWFpbih7IGNoZWNrZWQ6IHRydWUgfSk7XG4iXSwibmFtZXMiOltdLCJzb3VyY2VSb290IjoiIn0=