// What a page can do when a button is clicked: `<name>.ts` beside this file, whose default function gets the chat.

export interface Chat {
  readonly isOnPage: boolean;
  close(): void;
  ask(text: string): void;
}

const ACTIONS = import.meta.glob<(chat: Chat) => void>(["./*.ts", "!./index.ts"], { eager: true, import: "default" });

export function act(name: string, chat: Chat): void {
  const action = ACTIONS[`./${name}.ts`];
  if (action) action(chat);
  else console.warn(`Unknown client action: ${name}`);
}
