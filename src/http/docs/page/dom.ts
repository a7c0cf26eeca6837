/** Elements by hand. Whatever is shown is set as text, so that nothing becomes markup. */

type Attributes = Readonly<Record<string, string | boolean | undefined>>;

/** A new element; `true` is an attribute without a value, `false` and `undefined` none. */
export function make<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  ...children: readonly (Node | string)[]
): HTMLElementTagNameMap[Tag] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? '' : value);
    }
  }
  element.append(...children);
  return element;
}

/** A button that does something. */
export function button(
  text: string,
  onClick: (button: HTMLButtonElement) => void,
  attributes: Attributes = {},
): HTMLButtonElement {
  const made = make('button', { type: 'button', ...attributes }, text);
  made.addEventListener('click', () => onClick(made));
  return made;
}

const COPIED_MS = 1_500;

/** Puts a text on the clipboard, and says so on the button for a moment. */
export async function copy(text: string, from: HTMLButtonElement): Promise<void> {
  const was = from.dataset['label'] ?? from.textContent;
  from.dataset['label'] = was;
  try {
    await navigator.clipboard.writeText(text);
    from.textContent = 'Copied';
  } catch {
    // Without the permission, or over plain HTTP, there is no clipboard.
    from.textContent = 'Select and copy';
  }
  setTimeout(() => (from.textContent = was), COPIED_MS);
}

/** Moves the focus among tabs by the arrow keys, and tells which one has it then. */
export function arrowsBetween(list: Element, onMove: (tab: HTMLElement) => void): void {
  list.addEventListener('keydown', (event) => {
    const { key } = event as KeyboardEvent; // what `keydown` is
    const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
    if (step === undefined) return;
    const tabs = [...list.querySelectorAll<HTMLElement>('[role=tab]')];
    const at = tabs.findIndex((tab) => tab === document.activeElement);
    const next = tabs[(at + step + tabs.length) % tabs.length];
    if (next === undefined) return;
    event.preventDefault();
    onMove(next);
    next.focus();
  });
}
