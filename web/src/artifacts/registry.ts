// How artifacts are shown: the first line that fits. A new type is a component and a line here.

import type { Component } from "svelte";
import Chart from "./Chart.svelte";
import { isTable, type Shown } from "./growing";
import Json from "./Json.svelte";
import Picture from "./Picture.svelte";
import Table from "./Table.svelte";
import Text from "./Text.svelte";

interface Viewer {
  readonly icon: string;
  readonly fits: (artifact: Shown) => boolean;
  readonly component: Component<any>;
  readonly props: (artifact: Shown) => Record<string, unknown>;
}

const RASTER = /^image\/(?:png|jpeg|gif|webp|avif)$/;

const VIEWERS: readonly Viewer[] = [
  { icon: "chart", fits: ({ type, value }) => type === "echarts" && value !== undefined, component: Chart, props: ({ value, isGrowing }) => ({ value, isGrowing }) },
  { icon: "image", fits: ({ ref }) => RASTER.test(ref?.mime_type ?? ""), component: Picture, props: ({ ref, field }) => ({ id: ref?.artifact_id, alt: field }) },
  { icon: "table", fits: ({ value }) => isTable(value), component: Table, props: ({ value }) => ({ rows: value }) },
  { icon: "file", fits: ({ value }) => typeof value === "string", component: Text, props: ({ value, type, mime }) => ({ text: value, isMarkdown: /markdown/.test(type + mime) }) },
  { icon: "json", fits: ({ value }) => value !== undefined, component: Json, props: ({ value, field }) => ({ value, title: "JSON", label: field }) },
];

export function viewerOf(artifact: Shown): Viewer | undefined {
  return VIEWERS.find((viewer) => viewer.fits(artifact));
}
