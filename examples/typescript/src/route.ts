// The shortest round trip through places on a sphere, by 2-opt from random beginnings. Pure: no clock, no I/O, the same seed gives the
// same trip.

export interface Place {
  name: string;
  latitude: number;
  longitude: number;
}

export interface Trip {
  /** Indices of places; the way goes back to the first. */
  order: number[];
  kilometres: number;
}

export interface Found extends Trip {
  round: number;
  /** Shorter than everything before. */
  better: boolean;
}

const EARTH_RADIUS_KM = 6371.0088;

/** The great-circle distance. */
export function kilometres(a: Place, b: Place): number {
  const radians = Math.PI / 180;
  const latitude = ((b.latitude - a.latitude) * radians) / 2;
  const longitude = ((b.longitude - a.longitude) * radians) / 2;
  const across = Math.cos(a.latitude * radians) * Math.cos(b.latitude * radians);
  const chord = Math.sin(latitude) ** 2 + across * Math.sin(longitude) ** 2;
  return 2 * EARTH_RADIUS_KM * Math.asin(Math.min(1, Math.sqrt(chord)));
}

export function lengthOf(order: number[], distances: number[][]): number {
  return order.reduce((sum, place, at) => sum + distances[place]![order[(at + 1) % order.length]!]!, 0);
}

/** Yields the best trip so far after each of `rounds` beginnings. The first begins with the places as they were given. */
export function* search(places: Place[], rounds: number, seed: number): Generator<Found> {
  const distances = places.map((a) => places.map((b) => kilometres(a, b)));
  const random = generator(seed);
  let best: Trip = { order: places.map((_, at) => at), kilometres: Infinity };
  for (let round = 1; round <= rounds; round++) {
    const order = places.map((_, at) => at);
    if (round > 1) {
      shuffle(order, random);
    }
    improve(order, distances);
    const length = lengthOf(order, distances);
    // A tiny gain is the same trip, added up in another order.
    const better = length < best.kilometres - 1e-6;
    if (better) {
      const start = order.indexOf(0);
      best = { order: [...order.slice(start), ...order.slice(0, start)], kilometres: length };
    }
    yield { ...best, round, better };
  }
}

/** Turns parts of the trip around while that makes it shorter. */
function improve(order: number[], distances: number[][]): void {
  const n = order.length;
  const between = (i: number, j: number) => distances[order[i % n]!]![order[j % n]!]!;
  for (let improved = true; improved; ) {
    improved = false;
    for (let i = 0; i < n - 1; i++) {
      for (let j = i + 2; j < n - (i === 0 ? 1 : 0); j++) {
        if (between(i, j) + between(i + 1, j + 1) < between(i, i + 1) + between(j, j + 1) - 1e-9) {
          order.splice(i + 1, j - i, ...order.slice(i + 1, j + 1).reverse());
          improved = true;
        }
      }
    }
  }
}

function shuffle(order: number[], random: () => number): void {
  for (let i = order.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [order[i], order[j]] = [order[j]!, order[i]!];
  }
}

/** Numbers from 0 to 1 that depend on the seed alone (xorshift, 32 bits). */
function generator(seed: number): () => number {
  let state = (seed ^ 0x9e3779b9) >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state / 2 ** 32;
  };
}
