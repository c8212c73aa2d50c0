// Markdown of a model, as elements. It is hostile until shown otherwise: what DOMPurify leaves is inserted as it is, never parsed again.
//
// Rule 1: no styles, forms, frames, ids or names. Of a picture stands its text: its address would tell another server what was read.
// Rule 2: of HTML in it a few tags without attributes count; all others stand there as text.
// Rule 3: a link goes to http, https or mailto, in a new tab, without a referrer; its host is in its title.

import DOMPurify, { type Config } from "dompurify";
import { Lexer, type Links, Marked, type Token, type Tokens } from "marked";
import { inFrame } from "./frames";

const SIMPLE = /(<\/?(?:br|b|i|em|strong|s|del|sub|sup|kbd|details|summary)\s*\/?>)|[<>"]/gi;
const marked = new Marked({
  gfm: true,
  async: false,
  // One tilde is an "about", as in "20~25": two strike out. False: as the library does it.
  tokenizer: { del: (source) => (source.startsWith("~~") ? false : undefined) },
  renderer: {
    image: ({ text, title }) => escaped(text || title || "image"),
    html: ({ text }) => text.replace(SIMPLE, (sign, tag?: string) => tag ?? `&#${sign.charCodeAt(0)};`),
  },
});
const ALLOWED: Config = {
  ALLOWED_TAGS: [
    ..."a b blockquote br code del details em h1 h2 h3 h4 h5 h6 hr i kbd li ol p pre s strong sub summary sup".split(" "),
    ..."table tbody td th thead tr ul".split(" "),
  ],
  ALLOWED_ATTR: ["href", "title", "align", "start"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?:\/\/|mailto:)/i,
  RETURN_DOM_FRAGMENT: true,
};
const purify = DOMPurify(window);
purify.setConfig(ALLOWED);

purify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A") return;
  const href = node.getAttribute("href");
  if (href === null) return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer nofollow");
  node.setAttribute("title", href.slice(0, 300));
});

/** A last line that may still become something else: the underline of a heading or the dash of a list, the address of a reference. */
const UNDECIDED = /(?:^|\n) {0,3}(?:-+|=+|\[[^\]\n]*\]:[^\n]*)[ \t]*$/;
const ADDRESS = /^(?:https?:|www\.|[^@]+@)/i;

/** Takes the link from a bare address in which the text ends: half of an address is another address. */
function unlinkGrowing(drawn: DocumentFragment, text: string): void {
  const link = [...drawn.querySelectorAll("a")].at(-1);
  const address = link?.textContent ?? "";
  const lastWord = text.slice(Math.max(text.lastIndexOf(" "), text.lastIndexOf("\n")) + 1);
  if (ADDRESS.test(address) && lastWord.includes(address)) link?.replaceWith(address);
}

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}

/** `titles`: of the sources; `[2]` in the text is a mark of the second one. */
function elements(blocks: readonly Token[], titles: readonly string[]): DocumentFragment {
  const fragment = purify.sanitize(marked.parser([...blocks])) as unknown as DocumentFragment;
  for (const table of fragment.querySelectorAll("table")) {
    const frame = document.createElement("div");
    frame.className = "prose-table";
    table.classList.add("table");
    table.replaceWith(frame);
    frame.append(table);
  }
  for (const pre of fragment.querySelectorAll("pre")) {
    pre.tabIndex = 0;
    pre.before(copyButton(pre));
  }
  if (titles.length) markSources(fragment, titles);
  return fragment;
}

function markSources(fragment: DocumentFragment, titles: readonly string[]): void {
  const texts: Text[] = [];
  const walker = document.createTreeWalker(fragment, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) if (!walker.currentNode.parentElement?.closest("a, pre, code, button")) texts.push(walker.currentNode as Text);
  for (const node of texts) {
    const parts = node.data.split(/\[(\d{1,3})\]/);
    if (parts.length === 1) continue;
    node.replaceWith(...parts.map((part, at) => (at % 2 ? sourceMark(Number(part), titles) : part)));
  }
}

function sourceMark(number: number, titles: readonly string[]): HTMLElement | string {
  const title = titles[number - 1];
  if (title === undefined) return `[${number}]`;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "cite";
  button.title = title;
  button.textContent = String(number);
  button.addEventListener("click", () => {
    const source = button.closest("article")?.querySelectorAll<HTMLElement>(".sources li")[number - 1];
    source?.scrollIntoView({ block: "nearest" });
    source?.focus();
  });
  return button;
}

function copyButton(pre: HTMLElement): HTMLElement {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "btn quiet sm copy";
  button.textContent = "Copy";
  button.addEventListener("click", () => void navigator.clipboard.writeText(pre.textContent ?? ""));
  return button;
}

/** What one lexing takes in, in characters; a longer block is read in larger pieces. */
const PIECE = 4_000;
/** Blocks in one element: a page looks in each frame which of the elements with `content-visibility` are in view. */
const MOST = 40;
/** What a frame may cost, in ms: a long text is drawn over several. */
const BUDGET_MS = 6;

/**
 * Shows a text that grows in an element, which is `aria-busy` while there is more to draw. All but the last two blocks are settled, and never
 * read again.
 */
export class MarkdownView {
  private text = "";
  private titles: readonly string[] = [];
  private isDrawn = true;
  private isWaiting = false;
  /** Where the blocks end that are settled. */
  private settled = 0;
  private tail: ChildNode[] = [];
  private piece = PIECE;
  private isWriting = true;
  /** What `[text][name]` refers to. A name that is explained behind its use makes the text be drawn again at its end. */
  private links: Links = Object.create(null) as Links;
  private known = 0;

  constructor(private readonly target: HTMLElement) {}

  show(given: string, isWriting: boolean, titles: readonly string[]): void {
    const plain = given.replaceAll("\r", ""); // The lexer tells lengths without them.
    const text = isWriting ? plain.replace(UNDECIDED, "") : plain;
    const areSame = titles.join("\n") === this.titles.join("\n");
    if (!areSame || text.slice(0, this.settled) !== this.text.slice(0, this.settled)) this.restart();
    this.isDrawn &&= areSame && text === this.text && isWriting === this.isWriting;
    [this.text, this.titles, this.isWriting] = [text, titles, isWriting];
    if (!this.isWaiting) this.draw();
  }

  private restart(): void {
    this.target.replaceChildren();
    [this.settled, this.tail, this.isDrawn] = [0, [], false];
  }

  private draw(): void {
    const begun = performance.now();
    while (!this.isDrawn && performance.now() - begun < BUDGET_MS) this.drawPiece();
    this.target.ariaBusy = String(!this.isDrawn);
    this.isWaiting = !this.isDrawn;
    if (this.isWaiting) inFrame(() => this.draw());
  }

  private drawPiece(): void {
    const text = this.text.slice(this.settled, this.settled + this.piece);
    this.isDrawn = this.settled + text.length === this.text.length;
    const lexer = new Lexer(marked.defaults);
    Object.assign(lexer.tokens.links, this.links);
    const open = lexer.lex(text);
    const done = open.splice(0, this.isDrawn && !this.isWriting ? open.length : open.length - 2);
    for (const token of done) if (token.type === "def") this.links[token["tag"] as string] ??= token as Tokens.Def;
    const length = done.reduce((sum, token) => sum + token.raw.length, 0);
    this.piece = length ? PIECE : 2 * this.piece;
    if (!length && !this.isDrawn) return;
    this.settled += length;
    for (const node of this.tail) node.remove();
    let part = this.target.lastElementChild;
    if (!part || part.childElementCount > MOST) this.target.append((part = document.createElement("div")));
    part.append(elements(done, this.titles));
    const tail = elements(this.isDrawn ? open : [], this.titles);
    if (this.isWriting) unlinkGrowing(tail, text);
    this.tail = [...tail.childNodes];
    part.append(...this.tail);
    const count = Object.keys(this.links).length;
    if (!this.isDrawn || this.isWriting || count === this.known) return;
    this.known = count;
    this.restart();
  }
}
