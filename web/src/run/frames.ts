/** Does it in the next frame. A tab in the background draws none, and needs to know the end all the same. */
export function inFrame(action: () => void): void {
  if (document.hidden) setTimeout(action, 0);
  else requestAnimationFrame(action);
}
