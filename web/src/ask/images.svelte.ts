// Images of a question: uploaded first, so that the question names them and carries no bytes. What is uploaded survives a reload.

import { Problem } from "@runwire/client";
import { gateway } from "../app/gateway.svelte";

const MOST = 8;

interface Stored {
  readonly id: string;
  readonly name: string;
}

export class Picked {
  state = $state<"sending" | "ready" | "failed">("sending");
  problem = $state("");
  id = "";

  /** `preview`: of the file; none of an image that was uploaded before this page was loaded. */
  constructor(
    readonly name: string,
    readonly preview = "",
  ) {}

  async send(file: File, sessionId: string): Promise<void> {
    try {
      this.id = (await gateway.client.upload(file, { filename: this.name, ...(sessionId ? { session_id: sessionId } : {}) })).artifact_id;
      this.state = "ready";
    } catch (error) {
      this.problem = error instanceof Problem ? error.detail : "The upload failed.";
      this.state = "failed";
    }
  }
}

export class Images {
  picked = $state.raw<readonly Picked[]>([]);

  /** `keptAs`: the name below which this tab keeps them. */
  constructor(private readonly keptAs = "") {
    const stored = JSON.parse((keptAs && sessionStorage.getItem(keptAs)) || "[]") as Stored[];
    this.picked = stored.map(({ id, name }) => Object.assign(new Picked(name), { id, state: "ready" as const }));
  }

  add(files: Iterable<File>, sessionId: string): void {
    const images = [...files].filter((file) => file.type.startsWith("image/")).slice(0, MOST - this.picked.length);
    for (const file of images) {
      const image = new Picked(file.name || "image", URL.createObjectURL(file));
      this.picked = [...this.picked, image];
      void image.send(file, sessionId).then(() => this.keep());
    }
  }

  remove(image: Picked): void {
    URL.revokeObjectURL(image.preview);
    this.picked = this.picked.filter((one) => one !== image);
    this.keep();
  }

  get areReady(): boolean {
    return this.picked.every((image) => image.state === "ready");
  }

  /** Their references, for the question; none are left. */
  take(): { artifact_id: string }[] {
    const references = this.picked.map((image) => ({ artifact_id: image.id }));
    for (const image of this.picked) this.remove(image);
    return references;
  }

  private keep(): void {
    const stored = this.picked.filter((image) => image.state === "ready").map(({ id, name }): Stored => ({ id, name }));
    if (this.keptAs) sessionStorage.setItem(this.keptAs, JSON.stringify(stored));
  }
}
