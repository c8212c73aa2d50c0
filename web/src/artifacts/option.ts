// Chart options of tools and models, made harmless: ECharts does not sanitise what it is given.
//
// Rule 1: names that mean code, HTML, links or other documents are dropped wherever they stand, also inside `baseOption`, `options`,
// `media` and `timeline`.
// Rule 2: pictures come from nowhere: symbols and fills that name an address are dropped.
// Rule 3: nothing takes for ever: points, members and ticks are counted, and transforms, which hold patterns of their own, are dropped.
// Rule 4: tips are drawn on the canvas, so no text of theirs becomes HTML.

const DROPPED = new Set([
  ..."__proto__ constructor prototype".split(" "),
  ..."toolbox graphic geo geo3D globe custom renderItem optionToContent contentToOption dataView".split(" "),
  ..."link sublink target subtarget extraCssText className appendTo appendToBody enterable map image backgroundImage".split(" "),
  ..."triggerEvent rich transform".split(" "),
]);
const ADDRESS = /^\s*(?:image:\/\/|url\(|(?:javascript|vbscript|data|blob|https?|file|ftp):)/i;
const SERIES = new Set(["line", "bar", "pie", "scatter", "radar", "effectScatter", "heatmap", "boxplot", "candlestick", "funnel", "gauge"]);
const MOST_POINTS = 50_000;
const DEEPEST = 24;
const MOST_SPLITS = 100;

type Option = Record<string, unknown>;

export interface Safe {
  readonly option: Option;
  /** What was left out, for the person who looks. */
  readonly notes: string[];
}

export function safeOption(given: unknown): Safe {
  const budget = { left: MOST_POINTS };
  const option = clean(given, 0, budget) as Option | undefined;
  const notes: string[] = budget.left < 0 ? [`Only the first ${MOST_POINTS.toLocaleString("en")} values are drawn.`] : [];
  return { option: isObject(option) ? { ...option, tooltip: tips(option["tooltip"]) } : {}, notes };
}

export function isDrawable(option: unknown): boolean {
  return isObject(option) && Array.isArray(option["series"]) && option["series"].some((one) => SERIES.has((one as { type?: string } | null)?.type ?? ""));
}

function clean(value: unknown, depth: number, budget: { left: number }): unknown {
  if (depth > DEEPEST || typeof value === "function" || typeof value === "symbol") return undefined;
  if (typeof value === "string") return ADDRESS.test(value) ? undefined : value.slice(0, 10_000);
  if (Array.isArray(value)) {
    const items: unknown[] = [];
    for (const item of value) {
      budget.left -= 1;
      if (budget.left < 0) break;
      items.push(clean(item, depth + 1, budget) ?? null);
    }
    return items;
  }
  if (typeof value !== "object" || value === null) return value;
  const kept: Option = {};
  for (const [name, member] of Object.entries(value)) {
    budget.left -= 1;
    if (budget.left < 0) break;
    if (DROPPED.has(name)) continue;
    if (name === "formatter" && (typeof member !== "string" || member.includes("<"))) continue;
    const cleaned = clean(name === "splitNumber" ? Math.min(Number(member) || 5, MOST_SPLITS) : member, depth + 1, budget);
    if (cleaned === undefined) continue;
    if (name === "series" && Array.isArray(cleaned)) kept[name] = cleaned.filter((one) => isObject(one) && SERIES.has(String(one["type"])));
    else kept[name] = name === "tooltip" ? tips(cleaned) : cleaned;
  }
  return kept;
}

function tips(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(tips);
  return { ...(isObject(value) ? value : {}), renderMode: "richText", confine: true };
}

function isObject(value: unknown): value is Option {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
