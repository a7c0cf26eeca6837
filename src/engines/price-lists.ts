/**
 * Public price lists: fetched from their address, and kept in the data folder for a day, or for as
 * long as the address cannot be reached.
 */
import { mkdir, readFile, rename, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ListedPrice } from '../config/config.ts';
import { type Clock, DAY_MS, SECOND_MS, isoTime } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import { reasonOf } from '../core/log.ts';
import { siblingUrl } from '../core/sibling.ts';
import { workerResult } from '../core/worker-result.ts';
import { Guard } from '../net/guard.ts';

/** The price file of LiteLLM, which also has the context and the type of each model. */
export const PUBLIC_PRICE_LIST =
  'https://raw.githubusercontent.com/BerriAI/litellm/main/model_prices_and_context_window.json';

const LIMITS = { maxBytes: 64 * 1024 * 1024, timeoutMs: 60 * SECOND_MS, maxRedirects: 3 };
const FILE = 'price-list.json';
const PRIVATE = 0o600;

/** Throws an Error with the reason. */
export async function fetchPriceList(
  source: string,
  timeoutMs = LIMITS.timeoutMs,
): Promise<string> {
  const url = new URL(source);
  // An operator may use a mirror on its own machine.
  const allow = ['127.0.0.0/8', '::1/128'];
  const port = Number(url.port) || (url.protocol === 'https:' ? 443 : 80);
  const guard = new Guard({ allow, ports: [port] });
  try {
    const { bytes } = await guard.fetch(source, { ...LIMITS, timeoutMs });
    return bytes.toString('utf8');
  } catch (error) {
    throw new Error(`The price list cannot be fetched: ${reasonOf(error)}`, { cause: error });
  }
}

export interface PublicPrices {
  readonly list: readonly ListedPrice[];
  /** Time of the fetch, ISO 8601; `null` if there is no list. */
  readonly fetchedAt: string | null;
  /** Why the list could not be fetched now. */
  readonly problem: string | null;
}

interface PublicPricesParts {
  readonly dataFolder: string;
  /** Another list than the public one is not kept. */
  readonly source: string;
  readonly clock: Clock;
  readonly ids: Ids;
}

/** Limit of a fetch while a person waits. */
const WAIT_MS = 20 * SECOND_MS;

/** Never rejects: without a list the operator enters prices. */
export async function publicPrices(parts: PublicPricesParts): Promise<PublicPrices> {
  const { dataFolder, source, clock, ids } = parts;
  if (source !== PUBLIC_PRICE_LIST) return await fetchedPrices(source, clock);
  const file = join(dataFolder, FILE);
  const kept = await stat(file).catch(() => undefined);
  const keptMs = kept?.mtimeMs;
  let problem: string | null = null;
  if (keptMs === undefined || clock.nowMs() > keptMs + DAY_MS) {
    try {
      const text = await fetchPriceList(source, WAIT_MS);
      const list = await listOf(text);
      const draft = `${file}.${ids.hex(4)}.draft`;
      await mkdir(dataFolder, { recursive: true });
      await writeFile(draft, text, { mode: PRIVATE });
      await rename(draft, file);
      return { list, fetchedAt: isoTime(clock.nowMs()), problem };
    } catch (error) {
      // An older list is better than none.
      problem = reasonOf(error);
    }
  }
  if (keptMs === undefined) return { list: [], fetchedAt: null, problem };
  try {
    const list = await listOf(await readFile(file, 'utf8'));
    return { list, fetchedAt: isoTime(keptMs), problem };
  } catch (error) {
    // A file that someone has changed.
    return { list: [], fetchedAt: null, problem: reasonOf(error) };
  }
}

async function fetchedPrices(source: string, clock: Clock): Promise<PublicPrices> {
  try {
    const list = await listOf(await fetchPriceList(source, WAIT_MS));
    return { list, fetchedAt: isoTime(clock.nowMs()), problem: null };
  } catch (error) {
    // The operator sees the reason, and enters prices.
    return { list: [], fetchedAt: null, problem: reasonOf(error) };
  }
}

/** In a worker thread, because thousands of models would block the event loop. */
export async function listOf(text: string): Promise<readonly ListedPrice[]> {
  const entry = siblingUrl(import.meta.url, 'price-list-worker');
  return await workerResult<readonly ListedPrice[]>(entry, text);
}
