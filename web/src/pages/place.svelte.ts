// Where the user stands, as each question of the page's chat says it.

import type { Page } from "@runwire/client";
import type { Proposal } from "../proposals/proposal.svelte";

export class Place {
  /** What the widget shows, such as the name of a table. */
  title = $state("");
  tab = $state("");
  subtab = $state("");
  filters = $state.raw<Record<string, string>>({});
  selection = $state.raw<number[]>([]);

  constructor(
    readonly name: string,
    readonly tableId: string,
  ) {}

  get asked(): Page {
    const { name, tab, subtab, filters, selection } = this;
    return { name, tab: tab || null, subtab: subtab || null, table_id: this.tableId || null, filters, selection };
  }
}

/** What a widget is given. `pending`: the proposal that waits for a decision. */
export interface WidgetProps {
  readonly place: Place;
  readonly pending: Proposal | undefined;
}
