// A tool that takes its time: the shortest round trip through places. It shows how far it is, the route as it gets shorter, and stops
// when nobody waits for it any more.

import { setImmediate as turn } from "node:timers/promises";
import { main, tool, ToolError } from "@runwire/sdk/tools";
import { z } from "zod";
import { type Found, type Place, search } from "./route.js";

/** Of computing, before other calls and the heartbeats get their turn. */
const TURN_MS = 20;
const SHOW_MS = 500;

const PLACE = z.object({ name: z.string(), latitude: z.number().min(-90).max(90), longitude: z.number().min(-180).max(180) });

const ABOUT = {
  name: "plan_route",
  description: "Plan the shortest round trip through places given by latitude and longitude, as the crow flies",
  args: z.object({
    places: z.array(PLACE).min(3).max(60),
    rounds: z.int().min(1).max(1_000_000).default(200).describe("random beginnings to try"),
    seed: z.int().default(1).describe("the same seed gives the same trip"),
  }),
  result: z.object({
    answer: z.string(),
    order: z.array(z.string()),
    kilometres: z.number(),
    route: z.looseObject({}).meta({ description: "GeoJSON", artifact: true, stream: true, stream_id: "route" }),
  }),
  idempotent: true,
  side_effects: "none" as const,
  timeout_s: 30,
  tags: ["planning", "geography"],
};

const planRoute = tool(ABOUT, async ({ places, rounds, seed }, context) => {
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
});

function geoJson(places: Place[], { order, kilometres }: Found): Record<string, unknown> {
  const way = [...order, order[0]!].map((at) => [places[at]!.longitude, places[at]!.latitude]);
  return { type: "Feature", properties: { kilometres }, geometry: { type: "LineString", coordinates: way } };
}

await main(planRoute);
