// The page: reads its data, then shows the view that the address names.
import { render, type ComponentChildren } from "preact";
import { useErrorBoundary } from "preact/hooks";
import type { Shown } from "./context";
import { FAMILIES, read, type Columns, type Data, type Side } from "./data";
import { Comparison } from "./comparison";
import { Flame } from "./flame";
import { commandLine, time } from "./format";
import { Listing } from "./listing";
import { Starts } from "./starts";
import { eventsOf } from "./model";
import { Modules } from "./modules";
import { Overview } from "./overview";
import { whenIdle } from "./slices";
import { dark, get, link, number, OF_A_RUN, OF_A_VIEW, set, span, toggleTheme } from "./state";
import { Tables } from "./tables";
import { Timeline } from "./timeline";

declare const NOTICES: { name: string; version: string; license: string; text: string }[];

const VIEWS = [
  ["overview", "Overview"],
  ["timeline", "Timeline"],
  ["modules", "Modules"],
  ["tables", "Tables"],
  ["flame", "Flame graphs"],
] as const;

function Page({ data, columns }: { data: Data; columns: Columns }) {
  if (data.kind === "list") return <Frame title={<b>nodeprof</b>} data={data}><Listing data={data} /></Frame>;
  if (data.kind === "starts") return <Frame title={<b>nodeprof</b>} data={data}><Starts data={data} /></Frame>;
  const sides = data.sides ?? [];
  const isDiff = data.kind === "diff";
  const index = isDiff ? (number("side") === 0 ? 0 : 1) : 0;
  const side = sides[index];
  const run = side?.profile.runs[side.shown];
  const views = isDiff ? ([["comparison", "Comparison"], ...VIEWS] as const) : VIEWS;
  const view = get("view", isDiff ? "comparison" : "overview");
  const name = run ? commandLine(run.command) : "nodeprof";
  document.title = isDiff ? `${sides[0]?.name} → ${sides[1]?.name} · nodeprof` : `${name} · nodeprof`;
  const title = isDiff ? <b>{sides[0]?.name} → {sides[1]?.name}</b> : <b>{name}</b>;
  const during = span.value;
  const head = (
    <>
      <nav class="views" aria-label="Views">
        {views.map(([key, title]) => (
          <a key={key} href={link({ ...OF_A_VIEW, view: key })} {...(key === view ? { "aria-current": "page" as const } : {})}>{title}</a>
        ))}
      </nav>
      {isDiff && view !== "comparison" && (
        <div class="sides" role="group" aria-label="Side">
          {sides.map((one, at) => (
            <button key={at} type="button" aria-pressed={at === index} onClick={() => set({ ...OF_A_RUN, side: at })}>{one.name}</button>
          ))}
        </div>
      )}
      {during && (
        <button type="button" class="span" title="Show the whole run again" onClick={() => set({ time: null, range: null })}>
          {time(during[0])} – {time(during[1])} <span aria-hidden="true">✕</span><span class="hidden">: show the whole run again</span>
        </button>
      )}
    </>
  );
  if (!side || !run) {
    return <Frame title={title} data={data}><p class="empty">This recording has no run: nothing was started, or nothing was seen of it.</p></Frame>;
  }
  const shown: Shown = { data, columns, side, run, events: eventsOf(side, columns) };
  // Of a comparison both sides', of all else that of what is shown.
  const of = view === "comparison" && isDiff ? sides.map((one) => one.profile.runs[one.shown]) : [run];
  const versions = [...new Set(of.map((one) => one?.node?.version).filter((version) => version))];
  return (
    <Frame title={title} data={data} run={side.number} head={head} subtitle={versions.length > 0 ? `node ${versions.join(" → ")}` : ""}>
      <Guard key={`${view}${index}`}>
        {view !== "comparison" && view !== "overview" && <h2 class="hidden">{VIEWS.find(([key]) => key === view)?.[1] ?? "Overview"}</h2>}
        {view === "comparison" && isDiff ? <Comparison shown={shown} />
          : view === "timeline" ? <Timeline shown={shown} />
          : view === "modules" ? <Modules shown={shown} />
          : view === "tables" ? <Tables shown={shown} />
          : view === "flame" ? <Flame shown={shown} />
          : <Overview shown={shown} />}
      </Guard>
    </Frame>
  );
}

function Guard({ children }: { children: ComponentChildren }) {
  const [error] = useErrorBoundary((error) => console.error(error));
  if (error) return <p class="warning" role="alert">This view could not be drawn: {String(error)}. Please report it with the recording.</p>;
  return <>{children}</>;
}

function Frame({ title, subtitle, head, children, data, run }: { title: ComponentChildren; subtitle?: string; head?: ComponentChildren; children: ComponentChildren; data: Data; run?: number }) {
  return (
    <>
      <a class="skip" href="#content" onClick={(event) => {
        event.preventDefault();
        document.getElementById("content")?.focus();
      }}>Skip to the content</a>
      <header>
        <h1><Logo />{title}{subtitle && <small>{subtitle}</small>}</h1>
        {head}
        {data.kind !== "list" && data.kind !== "starts" && <Served side={data.sides?.[0]} />}
        <button type="button" class="theme" onClick={toggleTheme} aria-label={dark.value ? "Light colours" : "Dark colours"}>{dark.value ? "☀" : "☾"}</button>
      </header>
      <main id="content" tabIndex={-1} data-run={run}>{children}</main>
      <footer>
        <span>{data.generator}</span>
        <details>
          <summary>Licences of what this page is made of</summary>
          {NOTICES.map(({ name, version, license, text }) => (
            <section key={name}>
              <h4>{name} {version} ({license})</h4>
              <pre>{text}</pre>
            </section>
          ))}
        </details>
      </footer>
    </>
  );
}

/** Where nodeprof view serves the page: the way back to its list, and to other runs. */
function Served({ side }: { side: Side | undefined }) {
  if (!location.protocol.startsWith("http")) return null;
  const query = new URLSearchParams(location.search);
  const home = new URLSearchParams({ token: query.get("token") ?? "" });
  const runs = side && location.pathname === "/report" ? side.runs : 1;
  return (
    <>
      <a href={`./?${home}`}>Back to the list</a>
      {runs > 1 && (
        <label class="choice">
          Run
          <select value={String(side!.number)} onChange={(event) => {
            query.set("run", event.currentTarget.value);
            location.href = `?${query}${link(OF_A_RUN)}`;
          }}>
            {Array.from({ length: Math.min(runs, 500) }, (_, index) => <option key={index} value={String(index + 1)}>{index + 1}</option>)}
          </select>
        </label>
      )}
    </>
  );
}

function Logo() {
  return (
    <svg class="logo" viewBox="0 0 24 24" aria-hidden="true">
      <rect x="2" y="3" width="20" height="5" rx="1.2" fill="#44bb99" />
      <rect x="2" y="9.5" width="13" height="5" rx="1.2" fill="#eeaa33" />
      <rect x="6" y="16" width="7" height="5" rx="1.2" fill="#ee8866" />
    </svg>
  );
}

async function start(): Promise<void> {
  const place = document.getElementById("page")!;
  try {
    const element = document.getElementById("data")!;
    const { data, columns } = await read(element.textContent ?? "");
    // A page of a million events holds megabytes of text that nothing needs any more.
    element.remove();
    place.replaceChildren();
    render(<Page data={data} columns={columns} />, place);
    requestAnimationFrame(() => {
      performance.mark("nodeprof-shown");
      document.documentElement.dataset.ready = "yes";
      // What other views need, so that changing to them is quick.
      for (const side of data.sides ?? []) {
        const events = eventsOf(side, columns);
        if (events) whenIdle([() => void events.children, ...FAMILIES.flatMap((name) => events.pieces(name))]);
      }
    });
  } catch (error) {
    place.replaceChildren(Object.assign(document.createElement("p"), {
      className: "loading",
      textContent: `This page could not be read: ${error instanceof Error ? error.message : String(error)}`,
    }));
    throw error;
  }
}

void start();
