/** Which build this is: what `x-svc-version` and the OpenAPI document say. */
import { readFileSync } from 'node:fs';

const UNKNOWN = '00000000.000000';

/** `YYYYMMDD.HHMMSS`: of the build that runs, or in a checkout the one in package.json. */
export function revision(): string {
  const isBuild = import.meta.url.endsWith('.js');
  const url = new URL(isBuild ? '../build.json' : '../../package.json', import.meta.url);
  const { revision: stamped } = JSON.parse(readFileSync(url, 'utf8')) as { revision?: string }; // ours
  return stamped ?? UNKNOWN;
}
