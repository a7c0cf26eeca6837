/**
 * The latest requests of the playground, stored in the browser for each account and kind of request,
 * and deleted at sign-out. Results are not stored.
 */
import { readStored, storedNames, writeStored } from './browser-storage.ts';

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
  return JSON.parse(readStored(nameOf(accountId, kind)) ?? '[]') as Entry[]; // written below
}

export function writeHistory(accountId: string, kind: string, entries: readonly Entry[]): void {
  writeStored(nameOf(accountId, kind), JSON.stringify(entries));
}

/** Deletes the history of all accounts. */
export function forgetHistory(): void {
  for (const name of storedNames()) if (name.startsWith(PREFIX)) writeStored(name, undefined);
}

function nameOf(accountId: string, kind: string): string {
  return `${PREFIX}${accountId} ${kind}`;
}
