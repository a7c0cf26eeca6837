/** Which sections differ between two configurations, and which of those wait for a restart. */
import { isDeepStrictEqual } from 'node:util';

import type { Config } from './settings.ts';
import { SECTIONS } from './sections.ts';

export interface ConfigDifference {
  /** Changed sections, by their key in the file. */
  readonly changed: readonly string[];
  /** Those of them that the running server cannot take over. */
  readonly restart: readonly string[];
}

/** Values that are worked out from several places, under the key that an operator would change. */
const DERIVED = { database: 'databaseUrl', data: 'dataFolder' } as const;

/** Compares what is in force with what was loaded. */
export function diffConfig(before: Config, after: Config): ConfigDifference {
  const changed: string[] = [];
  const restart: string[] = [];
  for (const [name, section] of Object.entries(SECTIONS)) {
    const key = isDerived(name) ? DERIVED[name] : name;
    if (isDeepStrictEqual(pick(before, key), pick(after, key))) continue;
    changed.push(name);
    if (section.change === 'restart') restart.push(name);
  }
  return { changed, restart };
}

function isDerived(name: string): name is keyof typeof DERIVED {
  return Object.hasOwn(DERIVED, name);
}

function pick(config: Config, key: string): unknown {
  // `priceFile` shows in the models that it filled in; it has no place of its own.
  return Object.entries(config).find(([name]) => name === key)?.[1];
}
