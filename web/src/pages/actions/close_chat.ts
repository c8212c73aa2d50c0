import type { Chat } from "./index";

export default (chat: Chat) => chat.close();
