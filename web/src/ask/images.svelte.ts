// Images of a question: uploaded first, so that the question names them and carries no bytes.

import { Problem } from "@runwire/client";
import { gateway } from "../app/gateway.svelte";

const MOST = 8;

export class Picked {
  state = $state<"sending" | "ready" | "failed">("sending");
  problem = $state("");
  id = "";
  readonly preview: string;

  constructor(
    readonly file: File,
    sessionId: string,
  ) {
    this.preview = URL.createObjectURL(file);
    void this.send(sessionId);
  }

  private async send(sessionId: string): Promise<void> {
    try {
      const ref = await gateway.client.upload(this.file, { session_id: sessionId, filename: this.file.name || "image" });
      this.id = ref.artifact_id;
      this.state = "ready";
    } catch (error) {
      this.problem = error instanceof Problem ? error.detail : "The upload failed.";
      this.state = "failed";
    }
  }
}

export class Images {
  picked = $state.raw<readonly Picked[]>([]);

  add(files: Iterable<File>, sessionId: string): void {
    const images = [...files].filter((file) => file.type.startsWith("image/")).map((file) => new Picked(file, sessionId));
    this.picked = [...this.picked, ...images].slice(0, MOST);
  }

  remove(image: Picked): void {
    URL.revokeObjectURL(image.preview);
    this.picked = this.picked.filter((one) => one !== image);
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
}
