"""Programs made of many small packages: what one more package costs is the difference of two sizes."""

import json

# Two modules a package, in a folder of their own: so that Node has to go up one folder to find the package's scope, as it does
# in most published packages.
MODULES_PER_PACKAGE = 2


def write(folder, count, kind):
    """Writes a program that loads `count` packages as ES modules (`esm`) or CommonJS (`cjs`); returns its script's name."""
    esm = kind == "esm"
    names = [f"package-{index:03}" for index in range(count)]
    for name in names:
        package = folder / "node_modules" / name
        (package / "lib").mkdir(parents=True)
        entry = {"exports": "./lib/index.js", "type": "module"} if esm else {"main": "./lib/index.js"}
        (package / "package.json").write_text(json.dumps({"name": name, "version": "1.0.0", **entry}) + "\n")
        if esm:
            index = f"import value from './value.js';\nexport default `{name} ${{value}}`;\n"
            value = "export default 1;\n"
        else:
            index = f"module.exports = `{name} ${{require('./value.js')}}`;\n"
            value = "module.exports = 1;\n"
        (package / "lib" / "index.js").write_text(index)
        (package / "lib" / "value.js").write_text(value)
    manifest = {"name": "many-packages", "version": "1.0.0", "private": True}
    if esm:
        manifest["type"] = "module"
        lines = [f"import '{name}';" for name in names]
    else:
        lines = [f"require('{name}');" for name in names]
    (folder / "package.json").write_text(json.dumps(manifest) + "\n")
    (folder / "main.js").write_text("\n".join(lines) + "\n")
    return "main.js"
