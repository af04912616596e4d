/** One line about what was loaded; the id is only checked, so that two runs print the same. */
export function describe({ name, bytes, patience, id }) {
  if (!/^[\w-]{21}$/.test(id)) throw new Error(`not an id: ${id}`);
  return `${name}, ${bytes} bytes, ${patience} ms`;
}
