// A table as the page has read it: its columns, and the rows that fit the filters.

import type { Column, RowQuery, TableRow, TableSummary } from "@runwire/client";
import { gateway } from "../app/gateway.svelte";

const PAGE = 100;

export class OpenTable {
  table = $state.raw<TableSummary & { columns: Column[] }>();
  rows = $state.raw<readonly TableRow[]>([]);
  total = $state(0);
  cursor = $state<string | null>(null);
  problem = $state("");

  constructor(readonly id: string) {}

  /** `filters`: by the names of columns. `first`: numbers of rows that are shown before the others, whatever the filters say. */
  async load(filters: Record<string, unknown>, first: readonly number[] = [], after = this.rows.slice(0, 0)): Promise<void> {
    const query: RowQuery = { filters: Object.entries(filters).map(([column, value]) => ({ column, op: "equals", value })), limit: PAGE };
    try {
      const [table, page, named] = await Promise.all([
        gateway.client.table(this.id),
        gateway.client.rows(this.id, { ...query, cursor: after.length ? (this.cursor ?? undefined) : undefined }),
        first.length ? gateway.client.rows(this.id, { filters: [{ column: "row_id", op: "in", value: first }], limit: 500 }) : { rows: [] },
      ]);
      const shown = [...after, ...page.rows];
      const ids = new Set(shown.map((row) => row.row_id));
      [this.table, this.total, this.cursor, this.problem] = [table, page.total, page.next_cursor, ""];
      this.rows = [...named.rows.filter((row) => !ids.has(row.row_id)), ...shown];
    } catch (error) {
      this.problem = (error as Error).message;
    }
  }
}
