// Markdown of a model, as elements. It is hostile until shown otherwise: what DOMPurify leaves is inserted as it is, never parsed again.
//
// Rule 1: no styles, forms, frames, ids or names. Of a picture stands its text: its address would tell another server what was read.
// Rule 2: of HTML in it a few tags without attributes count; all others stand there as text.
// Rule 3: a link goes to http, https or mailto, in a new tab, without a referrer; its host is in its title.

import DOMPurify, { type Config } from "dompurify";
import { Marked, type Token } from "marked";

const SIMPLE = /(<\/?(?:br|b|i|em|strong|s|del|sub|sup|kbd|details|summary)\s*\/?>)|[<>"]/gi;
const marked = new Marked({
  gfm: true,
  async: false,
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

purify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A") return;
  const href = node.getAttribute("href");
  if (href === null) return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer nofollow");
  node.setAttribute("title", href.slice(0, 300));
});

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}

/** `titles`: of the sources; `[2]` in the text is a mark of the second one. */
export function elements(markdown: string, titles: readonly string[] = []): DocumentFragment {
  const html = marked.parse(markdown) as string;
  const fragment = purify.sanitize(html, ALLOWED) as unknown as DocumentFragment;
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

/** Shows a text that grows in an element: only its last blocks are read and drawn again. */
export class MarkdownView {
  private text = "";
  /** Of the blocks that cannot change any more: where they end, and their elements. */
  private settled = 0;
  private tail: Node[] = [];
  private titles = "";

  constructor(private readonly target: HTMLElement) {}

  show(text: string, titles: readonly string[] = []): void {
    const isSame = titles.join("\n") === this.titles;
    if (text === this.text && isSame) return;
    this.titles = titles.join("\n");
    if (!isSame || !text.startsWith(this.text.slice(0, this.settled))) {
      this.target.replaceChildren();
      [this.settled, this.tail] = [0, []];
    }
    this.text = text;
    for (const node of this.tail) (node as ChildNode).remove();
    this.tail = [];
    const tokens: Token[] = marked.lexer(text.slice(this.settled));
    const kept = tokens.slice(0, -2).reduce((length, token) => length + token.raw.length, 0);
    if (kept) this.target.append(elements(text.slice(this.settled, this.settled + kept), titles));
    this.settled += kept;
    const fragment = elements(text.slice(this.settled), titles);
    this.tail = [...fragment.childNodes];
    this.target.append(fragment);
  }
}
