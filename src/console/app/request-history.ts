/**
 * The latest requests of the playground, stored in the browser for each account and kind of request,
 * and deleted at sign-out. Results are not stored.
 */
export type RequestBody = Readonly<Record<string, unknown>>;

export interface Entry {
  readonly time: string;
  readonly summary: string;
  /** `undefined` for a request with a file, which is not stored. */
  readonly body: RequestBody | undefined;
  readonly requestId: string;
  readonly usd: number | undefined;
}

/** The text or number of a member; empty if it is missing. */
export function textIn(body: RequestBody, name: string): string {
  const value = body[name];
  return typeof value === 'string' || typeof value === 'number' ? String(value) : '';
}

const PREFIX = 'playground ';

export function readHistory(accountId: string, kind: string): readonly Entry[] {
  try {
    return JSON.parse(localStorage.getItem(nameOf(accountId, kind)) ?? '[]') as Entry[]; // written below
  } catch {
    return [];
  }
}

export function writeHistory(accountId: string, kind: string, entries: readonly Entry[]): void {
  try {
    localStorage.setItem(nameOf(accountId, kind), JSON.stringify(entries));
  } catch {
    // Without storage, the history lasts as long as the page.
  }
}

/** Deletes the history of all accounts. */
export function forgetHistory(): void {
  try {
    const names = Object.keys(localStorage).filter((name) => name.startsWith(PREFIX));
    for (const name of names) localStorage.removeItem(name);
  } catch {
    // Without storage there is no history.
  }
}

function nameOf(accountId: string, kind: string): string {
  return `${PREFIX}${accountId} ${kind}`;
}
