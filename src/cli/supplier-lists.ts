/** Models and prices of suppliers, for `engines add` and `prices import`. */
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Config } from '../config/config.ts';
import { systemClock } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { silentLog } from '../core/log.ts';
import { type EngineTest, testEngine } from '../engines/engine-setup.ts';
import { fetchPriceList } from '../engines/price-lists.ts';
import { fetchWith, stoppable } from './fetch-command.ts';
import type { Console } from './terminal.ts';

/** The text of a price list, from a file or a URL. */
export async function listText(source: string, cwd: string): Promise<string> {
  const isUrl = /^https?:$/.test(URL.parse(source)?.protocol ?? '');
  return isUrl ? await fetchPriceList(source) : await readFile(resolve(cwd, source), 'utf8');
}

/** Calls the engine for the list of its models. Throws the reason of a failed call. */
export async function modelsOfEngine(
  console: Console,
  config: Config,
  { name, isProtocolKnown }: { readonly name: string; readonly isProtocolKnown: boolean },
  options: Parameters<typeof fetchWith>[2],
): Promise<Extract<EngineTest, { ok: true }>> {
  const parts = { clock: systemClock(), ids: systemIds(), log: silentLog };
  const fetching = fetchWith(console, config, options);
  const tested = await stoppable(console, (signal) =>
    testEngine(config, name, isProtocolKnown, { ...parts, signal, fetching }),
  );
  if (tested.ok) return tested;
  throw new Error(`Nothing was changed: ${tested.problem}`);
}
