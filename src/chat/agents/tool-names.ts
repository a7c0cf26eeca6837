/**
 * Tool names that every engine accepts: at most 64 letters, digits, `_` and `-`. A tool of a
 * namespace (an MCP server, for example) becomes `<namespace>__<tool>`; other names are shortened
 * and get a hash.
 */
import { sha256Hex } from '../../core/ids.ts';

const MAX_NAME_CHARS = 64;
const HASH_CHARS = 8;
const USUAL = /^[A-Za-z0-9_-]{1,64}$/;

export function engineToolName(name: string, namespace = ''): string {
  const whole = namespace === '' ? name : `${namespace}__${name}`;
  if (USUAL.test(whole)) return whole;
  const kept = whole.replaceAll(/[^A-Za-z0-9_-]/g, '_').slice(0, MAX_NAME_CHARS - HASH_CHARS - 1);
  return `${kept}_${sha256Hex(whole).slice(0, HASH_CHARS)}`;
}

/** The schema of a tool without arguments; some engines reject a tool without a schema. */
export const NO_PARAMETERS = { type: 'object', properties: {} };
