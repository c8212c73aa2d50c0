// How artifacts are shown: by the first of `types/` that fits. A new type is one file there, a component that exports `viewer`.

import type { Component } from "svelte";
import type { Shown } from "./growing";

export interface Fits {
  /** What the gallery calls such artifacts. */
  readonly kind: string;
  readonly icon: string;
  /** The lowest that fits shows it. */
  readonly rank: number;
  readonly fits: (artifact: Shown) => boolean;
}

const FILES = import.meta.glob<{ default: Component<{ artifact: Shown }>; viewer: Fits }>("./types/*.svelte", { eager: true });
const VIEWERS = Object.values(FILES)
  .map(({ default: component, viewer }) => ({ component, ...viewer }))
  .sort((one, other) => one.rank - other.rank);

export function viewerOf(artifact: Shown) {
  return VIEWERS.find((viewer) => viewer.fits(artifact));
}
