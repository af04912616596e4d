// The recordings of a folder, as nodeprof view serves them.
import { useEffect, useState } from "preact/hooks";
import type { Data, Listed } from "./data";
import { bytes, time } from "./format";
import { Table } from "./table";

export function Listing({ data }: { data: Data }) {
  const [list, setList] = useState(data.list ?? { folder: "", recordings: [] });
  const [marked, setMarked] = useState<string[]>([]);
  const [lost, setLost] = useState(false);
  useEffect(() => {
    // Same origin only, by the page's policy.
    const source = new EventSource(`events${location.search}`);
    source.addEventListener("recordings", (event) => {
      setLost(false);
      setList(JSON.parse((event as MessageEvent<string>).data) as typeof list);
    });
    source.addEventListener("error", () => setLost(true));
    return () => source.close();
  }, []);
  const address = (path: string, names: string[]) => {
    const query = new URLSearchParams(location.search);
    for (const name of names) query.append("file", name);
    return `${path}?${query}`;
  };
  const mark = (name: string, on: boolean) => setMarked(on ? [...marked.filter((one) => one !== name), name].slice(-2) : marked.filter((one) => one !== name));
  return (
    <>
      <section class="verdict">
        <h2>Recordings in {list.folder}</h2>
        <p class="note">{lost ? "nodeprof view has ended; start it again to see new recordings." : "New ones appear here by themselves."}</p>
        {marked.length === 2 && (
          <p><a class="button" href={address("diff", marked)}>Compare {marked[0]} (base) with {marked[1]} (head)</a></p>
        )}
      </section>
      <Table<Listed>
        name="recordings"
        caption="Recordings"
        rows={list.recordings}
        sort="-changed"
        empty="There is none yet. Type: nodeprof trace -o app.nodeprof -- node app.js"
        columns={[
          {
            key: "name", title: "Recording", unit: "text", value: (one) => one.name,
            show: (one) => (
              <span class="nowrap">
                <input type="checkbox" aria-label={`Compare ${one.name}`} checked={marked.includes(one.name)} disabled={one.error !== null} onChange={(event) => mark(one.name, event.currentTarget.checked)} />{" "}
                {one.error === null ? <a href={address("report", [one.name])}>{one.name}</a> : one.name}
              </span>
            ),
          },
          { key: "command", title: "Command", unit: "text", value: (one) => one.error ?? one.command },
          { key: "node", title: "Node.js", unit: "text", value: (one) => one.node },
          { key: "runs", title: "Runs", unit: "count", value: (one) => one.runs },
          { key: "time", title: "Time", unit: "ns", value: (one) => one.time_ns, show: (one) => (one.time_ns === null ? "" : time(one.time_ns)), help: "Of the first run: to the exit or the end of recording; of a program that went on then to the start of its event loop" },
          { key: "bytes", title: "Size", unit: "bytes", value: (one) => one.bytes, show: (one) => bytes(one.bytes) },
          { key: "changed", title: "Changed", unit: "text", value: (one) => new Date(one.changed_unix_ms).toISOString().replace("T", " ").slice(0, 19) },
        ]}
      />
    </>
  );
}
