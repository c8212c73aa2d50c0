// A proposal as the gateway knows it, and what a person has chosen of it. The card of its turn and the table of a page share one.

import { Problem, type ProposalInput, type ProposalView } from "@runwire/client";
import { gateway } from "../app/gateway.svelte";

export interface Operation {
  readonly action: string;
  readonly row_id?: unknown;
  readonly column_id?: string;
  readonly data?: Record<string, unknown>;
  readonly changes?: Record<string, unknown>;
  readonly column?: { name: string; type: string; options?: string[] };
}

/** How an action is shown: its tone, icon and word, and what some of them are called, of rows and of columns. */
export const ACTIONS: Record<string, { tone: string; icon: string; word: string; nouns: string[] }> = {
  add: { tone: "add", icon: "plus", word: "Add", nouns: ["addition", "new column"] },
  update: { tone: "upd", icon: "edit", word: "Change", nouns: ["update"] },
  modify: { tone: "upd", icon: "edit", word: "Change", nouns: ["", "modification"] },
  delete: { tone: "del", icon: "trash", word: "Delete", nouns: ["deletion"] },
  remove: { tone: "del", icon: "trash", word: "Remove", nouns: ["", "removal"] },
  reorder: { tone: "", icon: "arrow", word: "Move", nouns: ["", "move"] },
};

export const KINDS = ["data_proposal", "schema_proposal"];
const AGAIN_MS = 1_000;

export class Proposal {
  view = $state.raw<ProposalView>();
  /** Its operations by their numbers. */
  operations = $state.raw<readonly Operation[]>([]);
  /** Why an operation cannot be applied, or was not, by its number. */
  refused = $state.raw<ReadonlyMap<number, string>>(new Map());
  chosen = $state.raw<ReadonlySet<number>>(new Set());
  withSamples = $state(false);
  problem = $state("");
  private isSending = $state(false);

  constructor(readonly id: string) {
    void this.take(gateway.client.proposal(id));
  }

  get isOfRows(): boolean {
    return this.view?.kind === "data_proposal";
  }

  get isOpen(): boolean {
    return this.view?.state === "pending" || this.view?.state === "applying";
  }

  get isBusy(): boolean {
    return this.isSending || this.view?.state === "applying";
  }

  get isNewTable(): boolean {
    return this.view?.data["mode"] === "create";
  }

  get names(): Record<string, string> {
    return (this.view?.view?.["names"] ?? {}) as Record<string, string>;
  }

  choose(numbers: readonly number[], isChosen: boolean): void {
    const next = new Set(this.chosen);
    for (const number of numbers) isChosen && !this.refused.has(number) ? next.add(number) : next.delete(number);
    this.chosen = next;
  }

  /** All that can be applied, or none of it if all is chosen. */
  chooseAll(): void {
    this.choose([...this.operations.keys()], this.chosen.size < this.operations.length - this.refused.size);
  }

  apply(): Promise<void> {
    const some = this.isOfRows && this.chosen.size < this.operations.length;
    const choice = { include_sample_rows: this.withSamples, ...(some ? { operations: [...this.chosen] } : {}) };
    return this.decide(gateway.client.applyProposal(this.id, choice as ProposalInput));
  }

  dismiss(): Promise<void> {
    return this.decide(gateway.client.dismissProposal(this.id));
  }

  private async decide(answer: Promise<ProposalView>): Promise<void> {
    this.isSending = true;
    this.problem = "";
    await this.take(answer);
    this.isSending = false;
  }

  private async take(answer: Promise<ProposalView>): Promise<void> {
    try {
      const isFirst = !this.view;
      this.show(await answer);
      if (isFirst) this.choose([...this.operations.keys()], true);
      if (this.view?.state === "applying") setTimeout(() => void this.take(gateway.client.proposal(this.id)), AGAIN_MS);
    } catch (error) {
      this.problem = error instanceof Problem ? error.detail : (error as Error).message;
      // Somebody else has decided, or its tables say something new.
      if (this.view) await gateway.client.proposal(this.id).then((view) => this.show(view), () => undefined);
    }
  }

  private show(view: ProposalView): void {
    this.view = view;
    const given = view.data["operations"]; // A model may have written anything.
    this.operations = (Array.isArray(given) ? given : []).map((each) => (typeof each === "object" && each ? each : { action: "" }) as Operation);
    const refused = (view.verdicts ?? []).filter((each) => each["status"] === "failed");
    this.refused = new Map(refused.map((each) => [each["index"] as number, String(each["reason"] || each["code"])]));
  }
}

const known = new Map<string, Proposal>();

export function proposalOf(id: string): Proposal {
  const found = known.get(id) ?? new Proposal(id);
  known.set(id, found);
  return found;
}
