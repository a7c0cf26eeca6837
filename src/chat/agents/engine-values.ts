/**
 * Values of agent requests in the form that engines accept: tool names, the empty tool schema and
 * reasoning efforts.
 */
import { REASONING_EFFORTS } from '../../core/reasoning-efforts.ts';
import type { ReasoningEffort } from '../wire/chat-schema.ts';
import { sha256Hex } from '../../core/ids.ts';

const MAX_NAME_CHARS = 64;
const HASH_CHARS = 8;
const USUAL = /^[A-Za-z0-9_-]{1,64}$/;

/**
 * Returns a name of at most 64 letters, digits, `_` and `-`. A tool of a namespace (an MCP server, for
 * example) becomes `<namespace>__<tool>`; other names are shortened and get a hash.
 */
export function engineToolName(name: string, namespace = ''): string {
  const whole = namespace === '' ? name : `${namespace}__${name}`;
  if (USUAL.test(whole)) return whole;
  const kept = whole.replaceAll(/[^A-Za-z0-9_-]/g, '_').slice(0, MAX_NAME_CHARS - HASH_CHARS - 1);
  return `${kept}_${sha256Hex(whole).slice(0, HASH_CHARS)}`;
}

/** The schema of a tool without arguments; some engines reject a tool without a schema. */
export const NO_PARAMETERS = { type: 'object', properties: {} };

const OTHER_WORDS: Readonly<Record<string, ReasoningEffort>> = {
  off: 'none',
  disabled: 'none',
  minimum: 'minimal',
  light: 'low',
  normal: 'medium',
  default: 'medium',
  extra_high: 'xhigh',
  ultra: 'max',
  maximum: 'max',
};

/** Returns the nearest effort of this server; `undefined` if the name is missing or unknown. */
export function effortOf(word: string | null | undefined): ReasoningEffort | undefined {
  const asked = word?.toLowerCase() ?? '';
  return REASONING_EFFORTS.find((effort) => effort === asked) ?? OTHER_WORDS[asked];
}
