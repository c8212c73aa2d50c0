// A tool that takes its time: the shortest round trip through places. It shows how far it is, the route as it gets shorter, and stops
// when nobody waits for it any more.

import { setImmediate as turn } from "node:timers/promises";
import { type Context, ToolError, type ToolSpec } from "./protocol.js";
import { type Found, type Place, search } from "./route.js";
import { run } from "./run.js";

interface Arguments {
  places: Place[];
  rounds?: number;
  seed?: number;
}

/** Of computing, before other calls and the heartbeats get their turn. */
const TURN_MS = 20;
const SHOW_MS = 500;

const SPEC: ToolSpec = {
  name: "plan_route",
  description: "Plan the shortest round trip through places given by latitude and longitude, as the crow flies",
  input_schema: {
    type: "object",
    properties: {
      places: {
        type: "array",
        minItems: 3,
        maxItems: 60,
        items: {
          type: "object",
          properties: {
            name: { type: "string" },
            latitude: { type: "number", minimum: -90, maximum: 90 },
            longitude: { type: "number", minimum: -180, maximum: 180 },
          },
          required: ["name", "latitude", "longitude"],
        },
      },
      rounds: { type: "integer", minimum: 1, maximum: 1_000_000, default: 200, description: "random beginnings to try" },
      seed: { type: "integer", default: 1, description: "the same seed gives the same trip" },
    },
    required: ["places"],
  },
  output_schema: {
    type: "object",
    properties: {
      answer: { type: "string" },
      order: { type: "array", items: { type: "string" } },
      kilometres: { type: "number" },
      route: { type: "object", description: "GeoJSON", artifact: true, stream: true, stream_id: "route" },
    },
    required: ["answer", "order", "kilometres", "route"],
  },
  idempotent: true,
  side_effects: "none",
  timeout_s: 30,
  tags: ["planning", "geography"],
};

async function planRoute(args: Record<string, unknown>, context: Context): Promise<unknown> {
  const { places, rounds = 200, seed = 1 } = args as unknown as Arguments;
  if (new Set(places.map((place) => place.name)).size < places.length) {
    throw new ToolError("two places have the same name: give each its own");
  }
  let best: Found | undefined;
  let turnedAt = Date.now();
  let shownAt = 0;
  for (const found of search(places, rounds, seed)) {
    best = found;
    if (found.better) {
      context.artifact("route", geoJson(places, found), { type: "geojson" });
    }
    if (Date.now() - turnedAt >= TURN_MS) {
      await turn();
      context.signal.throwIfAborted();
      turnedAt = Date.now();
    }
    if (Date.now() - shownAt >= SHOW_MS) {
      context.progress(`${found.round} of ${rounds} beginnings, ${Math.round(found.kilometres)} km`, found.round / rounds);
      shownAt = Date.now();
    }
  }
  if (best === undefined) {
    throw new ToolError("rounds must be at least 1");
  }
  const route = geoJson(places, best);
  context.artifact("route", route, { done: true, type: "geojson" });
  const order = best.order.map((at) => places[at]!.name);
  const kilometres = Math.round(best.kilometres * 10) / 10;
  return { answer: `The shortest round trip found is ${kilometres} km: ${[...order, order[0]].join(", ")}.`, order, kilometres, route };
}

function geoJson(places: Place[], { order, kilometres }: Found): object {
  const way = [...order, order[0]!].map((at) => [places[at]!.longitude, places[at]!.latitude]);
  return { type: "Feature", properties: { kilometres }, geometry: { type: "LineString", coordinates: way } };
}

await run(SPEC, planRoute);
