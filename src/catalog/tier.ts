/**
 * The limit tier of a text model by its size. Sizes: XS up to 4 B parameters, S up to 15 B, M up
 * to 80 B, L above. Where nothing tells the size, M: neither generous nor useless.
 */
import type { Tier } from '../config/config.ts';

const SIZES: readonly (readonly [upToBillions: number, tier: Tier])[] = [
  [4, 'XS'],
  [15, 'S'],
  [80, 'M'],
];

/** The tier of a parameter count. */
export function tierOfParameters(parameters: number): Tier {
  return SIZES.find(([billions]) => parameters <= billions * 1e9)?.[1] ?? 'L';
}

// `8x7b` counts its experts; `a3b` (active parameters) is not the size.
const COUNT = /(?<![a-z0-9.])(?:(\d{1,3})x)?(\d{1,4}(?:\.\d{1,3})?)([bm])(?![a-z0-9])/g;

/** Parameters that an id such as `qwen3:0.6b`, `mixtral-8x7b` or `smol-135M` tells. */
export function parametersInId(id: string): number | undefined {
  let largest: number | undefined;
  for (const [, experts = '1', size = '0', unit] of id.toLowerCase().matchAll(COUNT)) {
    const parameters = Number(experts) * Number(size) * (unit === 'b' ? 1e9 : 1e6);
    if (parameters > (largest ?? 0)) largest = parameters;
  }
  return largest;
}

/** The tier guessed from the id. */
export function tierOfId(id: string): Tier {
  const parameters = parametersInId(id);
  return parameters === undefined ? 'M' : tierOfParameters(parameters);
}
