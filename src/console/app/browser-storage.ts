/**
 * Texts that this page stores in the browser. A browser can have no storage, or a full one: then a text
 * lasts as long as the page that holds it.
 */

export function readStored(name: string): string | undefined {
  try {
    return localStorage.getItem(name) ?? undefined;
  } catch {
    // Without storage, nothing is stored.
    return undefined;
  }
}

/** `undefined` deletes the text. */
export function writeStored(name: string, text: string | undefined): void {
  try {
    if (text === undefined) localStorage.removeItem(name);
    else localStorage.setItem(name, text);
  } catch {
    // The page keeps its own copy.
  }
}

export function storedNames(): readonly string[] {
  try {
    return Object.keys(localStorage);
  } catch {
    // As above.
    return [];
  }
}
