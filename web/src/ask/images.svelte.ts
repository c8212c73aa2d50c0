// Images of a question or an answer: uploaded first, so that it names them and carries no bytes. What is uploaded survives a reload.

import { Problem } from "@runwire/client";
import { gateway } from "../app/gateway.svelte";

const MOST = 8;

interface Stored {
  readonly id: string;
  readonly name: string;
}

export class Picked {
  state = $state<"sending" | "ready" | "failed">("sending");
  /** How much was sent. */
  percent = $state(0);
  problem = $state("");
  id = "";

  /** `preview`: of the file; none of an image that was uploaded before this page was loaded. */
  constructor(
    readonly name: string,
    readonly preview = "",
  ) {}

  async send(file: File, sessionId: string): Promise<void> {
    try {
      const client = gateway.sending((share) => (this.percent = Math.floor(100 * share)));
      this.id = (await client.upload(file, { filename: this.name, ...(sessionId ? { session_id: sessionId } : {}) })).artifact_id;
      this.state = "ready";
    } catch (error) {
      this.problem = error instanceof Problem ? error.detail : "The upload failed.";
      this.state = "failed";
    }
  }
}

export class Images {
  picked = $state.raw<readonly Picked[]>([]);

  /** `keptAs`: the name below which this tab keeps them. `sessionId`: what they belong to; none yet, where it is empty. */
  constructor(
    private readonly keptAs: string,
    private readonly sessionId = "",
  ) {
    const stored = JSON.parse(sessionStorage.getItem(keptAs) || "[]") as Stored[];
    this.picked = stored.map(({ id, name }) => Object.assign(new Picked(name), { id, state: "ready" as const }));
  }

  add(files: Iterable<File>): void {
    const images = [...files].filter((file) => file.type.startsWith("image/")).slice(0, MOST - this.picked.length);
    for (const file of images) {
      const image = new Picked(file.name || "image", URL.createObjectURL(file));
      this.picked = [...this.picked, image];
      void image.send(file, this.sessionId).then(() => this.keep());
    }
  }

  /** Those of a paste. A text that was copied with a picture of itself is a text. */
  paste(event: ClipboardEvent): void {
    const data = event.clipboardData;
    if (!data?.files.length || data.getData("text/plain")) return;
    event.preventDefault();
    this.add(data.files);
  }

  drop(event: DragEvent): void {
    event.preventDefault();
    this.add(event.dataTransfer?.files ?? []);
  }

  remove(image: Picked): void {
    URL.revokeObjectURL(image.preview);
    this.picked = this.picked.filter((one) => one !== image);
    this.keep();
  }

  get areReady(): boolean {
    return this.picked.every((image) => image.state === "ready");
  }

  get haveFailed(): boolean {
    return this.picked.some((image) => image.state === "failed");
  }

  /** Their references, for what is sent; none are left. */
  take(): { artifact_id: string }[] {
    const references = this.picked.map((image) => ({ artifact_id: image.id }));
    for (const image of this.picked) this.remove(image);
    return references;
  }

  private keep(): void {
    const stored = this.picked.filter((image) => image.state === "ready").map(({ id, name }): Stored => ({ id, name }));
    sessionStorage.setItem(this.keptAs, JSON.stringify(stored));
  }
}
