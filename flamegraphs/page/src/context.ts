// What every view gets: the side that is shown, its run and events.
import type { Columns, Data, Run, Side } from "./data";
import type { Events } from "./model";

export interface Shown {
  data: Data;
  columns: Columns;
  side: Side;
  run: Run;
  events: Events | null;
}
