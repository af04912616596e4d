// Tables that sort, filter and copy.
import { useMemo, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { count, inUnit, type Unit } from "./format";
import { get, set } from "./state";

type Value = number | string | boolean | null;

export interface Column<Row> {
  key: string;
  title: string;
  unit: Unit;
  value: (row: Row) => Value;
  /** What is shown instead of the value. */
  show?: (row: Row) => ComponentChildren;
  /** What the column tells, for its tooltip. */
  help?: string;
  /** The title is a name that somebody gave, and may be long: it takes several lines. */
  named?: boolean;
  /** Draws a bar of its share of the largest. */
  bar?: boolean;
}

interface Properties<Row> {
  /** Unique among tables that are shown together. */
  name: string;
  caption: string;
  columns: Column<Row>[];
  rows: Row[];
  sort?: string;
  /** Sorted, filtered rows of tables with an address of their own are kept in it. */
  addressed?: boolean;
  selected?: (row: Row) => boolean;
  first?: number;
  empty?: string;
  children?: ComponentChildren;
}

function text<Row>(column: Column<Row>, row: Row): string {
  const value = column.value(row);
  if (value === null) return "";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "string") return value;
  return inUnit(value, column.unit);
}

function compare(a: Value, b: Value): number {
  if (a === b) return 0;
  if (a === null) return -1;
  if (b === null) return 1;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

/** `key` sorts from small to large, `-key` from large to small. */
export function sorted<Row>(rows: Row[], columns: Column<Row>[], order: string): Row[] {
  const down = order.startsWith("-");
  const column = columns.find((column) => column.key === order.replace(/^-/, ""));
  if (!column) return rows;
  const keyed = rows.map((row, index) => ({ row, index, value: column.value(row) }));
  keyed.sort((a, b) => (down ? compare(b.value, a.value) : compare(a.value, b.value)) || a.index - b.index);
  return keyed.map(({ row }) => row);
}

export function filtered<Row>(rows: Row[], columns: Column<Row>[], filter: string): Row[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return rows;
  const texts = columns.filter((column) => column.unit === "text");
  return rows.filter((row) => {
    const line = texts.map((column) => text(column, row)).join("\t").toLowerCase();
    return words.every((word) => line.includes(word));
  });
}

/** Tab-separated, exact numbers: for a spreadsheet. */
export function asText<Row>(rows: Row[], columns: Column<Row>[]): string {
  const clean = (value: Value) => (value === null ? "" : String(value).replaceAll(/[\t\r\n]/g, " "));
  const unit = (column: Column<Row>) =>
    column.unit === "ns" || column.unit === "bytes" ? ` (${column.unit})` : "";
  const head = columns.map((column) => column.title + unit(column)).join("\t");
  return [head, ...rows.map((row) => columns.map((column) => clean(column.value(row))).join("\t"))].join("\n");
}

export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // From file:// the clipboard may be closed: the old way asks nobody.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

export function CopyButton({ text, label = "Copy" }: { text: () => string; label?: string }) {
  const [done, setDone] = useState(false);
  return (
    <button
      type="button"
      class="quiet"
      onClick={() => {
        void copy(text()).then(() => {
          setDone(true);
          setTimeout(() => setDone(false), 1500);
        });
      }}
    >
      <span aria-live="polite">{done ? "Copied" : label}</span>
    </button>
  );
}

/** A name that somebody gave; lines end behind the parts of labels. */
export function Name({ text }: { text: string }) {
  return <>{text.split(/(?<=[=,])/).map((part, at) => [at > 0 && <wbr />, part])}</>;
}

export function Table<Row>(properties: Properties<Row>) {
  const { name, caption, columns, rows, addressed = false, first = 50, selected } = properties;
  const [own, setOwn] = useState({ sort: properties.sort ?? "", filter: "" });
  const [shown, setShown] = useState(first);
  const order = addressed ? get("sort", properties.sort ?? "") : own.sort;
  const filter = addressed ? get("filter") : own.filter;
  const found = useMemo(
    () => sorted(filtered(rows, columns, filter), columns, order),
    [rows, columns, filter, order],
  );
  const most = useMemo(() => {
    const most = new Map<string, number>();
    for (const column of columns) {
      if (!column.bar) continue;
      let largest = 0;
      for (const row of rows) largest = Math.max(largest, Number(column.value(row) ?? 0));
      most.set(column.key, largest);
    }
    return most;
  }, [rows, columns]);
  const changeSort = (sort: string) => (addressed ? set({ sort }) : setOwn({ ...own, sort }));
  const changeFilter = (filter: string) =>
    addressed ? set({ filter }, false) : setOwn({ ...own, filter });
  if (rows.length === 0) return <p class="empty">{properties.empty ?? "Nothing of this was recorded."}</p>;
  const selectedAt = selected ? found.findIndex(selected) : -1;
  const visible = found.slice(0, Math.max(shown, selectedAt + 1));
  return (
    <section class="table" data-table={name}>
      <div class="bar">
        <h3 id={`caption-${name}`}>{caption}</h3>
        {properties.children}
        {rows.length > 8 && (
          <input
            type="search"
            placeholder="Filter"
            aria-label={`Filter: ${caption}`}
            value={filter}
            onInput={(event) => changeFilter(event.currentTarget.value)}
          />
        )}
        <CopyButton text={() => asText(found, columns)} />
      </div>
      <div class="scroll" tabIndex={0} role="region" aria-labelledby={`caption-${name}`}>
        <table aria-labelledby={`caption-${name}`}>
          <thead>
            <tr>
              {columns.map((column) => {
                const isSorted = order.replace(/^-/, "") === column.key;
                const down = order.startsWith("-");
                return (
                  <th
                    key={column.key}
                    scope="col"
                    class={`${column.unit === "text" ? "words" : "number"}${column.named ? " named" : ""}`}
                    {...(isSorted ? { "aria-sort": down ? ("descending" as const) : ("ascending" as const) } : {})}
                  >
                    <button
                      type="button"
                      title={column.help ?? ""}
                      onClick={() => {
                        const up = isSorted ? down : column.unit === "text";
                        changeSort(up ? column.key : `-${column.key}`);
                      }}
                    >
                      {column.named ? <Name text={column.title} /> : column.title}
                      <span class="arrow" aria-hidden="true">{isSorted ? (down ? "▼" : "▲") : ""}</span>
                    </button>
                  </th>
                );
              })}
            </tr>
          </thead>
          <tbody>
            {visible.map((row, index) => (
              <tr key={index} class={index === selectedAt ? "selected" : ""}>
                {columns.map((column) => {
                  const value = column.value(row);
                  const largest = most.get(column.key) ?? 0;
                  const share = column.bar && largest > 0 ? Number(value ?? 0) / largest : null;
                  return (
                    <td
                      key={column.key}
                      class={column.unit === "text" ? "words" : "number"}
                      data-key={column.key}
                      {...(value !== null && (typeof value !== "string" || column.show) ? { "data-value": String(value) } : {})}
                    >
                      {share !== null && <i class="share" style={{ width: `${share * 100}%` }} aria-hidden="true" />}
                      {column.show ? column.show(row) : value === 0 ? <span class="zero">0</span> : text(column, row)}
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {(found.length > visible.length || found.length !== rows.length) && (
        <p class="more">
          {count(visible.length)} of {count(found.length)}
          {found.length !== rows.length && `, ${count(rows.length - found.length)} filtered out`}
          {found.length > visible.length && (
            <>
              {" · "}
              <button type="button" class="quiet" onClick={() => setShown(visible.length + 200)}>200 more</button>
              {" "}
              <button type="button" class="quiet" onClick={() => setShown(found.length)}>all</button>
            </>
          )}
        </p>
      )}
    </section>
  );
}
