/** What is worked out of the settings once, and again when they change: for what every request asks. */
import type { Config } from './config.ts';

export function perConfig<T>(config: () => Config, make: (config: Config) => T): () => T {
  let made: { readonly from: Config; readonly value: T } | undefined;
  return () => {
    const from = config();
    if (made?.from !== from) made = { from, value: make(from) };
    return made.value;
  };
}
