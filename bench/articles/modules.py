"""Folders of files to require: Node's benchmarks module/module-require.js and module-loader.js in own words."""

import json

KINDS = ("js", "json", "directory", "package")


def write(folder, kind, count):
    """Writes `count` modules of a kind and a script that requires each once; returns the script's name."""
    names = []
    for index in range(count):
        if kind == "js":
            (folder / f"{index}.js").write_text(f"module.exports = {index};\n")
            names.append(f"./{index}.js")
        elif kind == "json":
            (folder / f"{index}.json").write_text(f'{{ "index": {index} }}\n')
            names.append(f"./{index}.json")
        else:
            (folder / str(index)).mkdir()
            main = "index.js" if kind == "directory" else "main.js"
            if kind == "package":
                (folder / str(index) / "package.json").write_text(json.dumps({"main": main}) + "\n")
            (folder / str(index) / main).write_text(f"module.exports = {index};\n")
            names.append(f"./{index}")
    (folder / "main.js").write_text("".join(f"require('{name}');\n" for name in names))
    return "main.js"
