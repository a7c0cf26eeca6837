/**
 * The service parameters of a chat request: their schema, their defaults, where they may come
 * from (the body under two names, tool types, suffixes of the model name), and the echo.
 *
 * Names are the wire's own, because the effective set is echoed as it stands. Unknown keys are
 * dropped, never refused.
 */
import { z } from 'zod';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';

const toggle = z.boolean().nullish();

/** What a caller may send; every field optional, `null` the same as absent. */
export const SvcParametersInput = z.object({
  character_slug: z.string().min(1).max(256).nullish().describe('Public id of a persona'),
  strip_thinking_response: toggle.describe('Removes <think></think> blocks. Default false'),
  disable_thinking: toggle.describe('Turns thinking off where the model can. Default false'),
  enable_web_search: z.enum(['off', 'on', 'auto']).nullish().describe('Default off'),
  enable_web_scraping: toggle.describe('Scrapes up to 5 URLs of the user message. Default false'),
  enable_x_search: toggle.describe("Uses the engine's own web and social search. Default false"),
  enable_web_citations: toggle.describe('Asks for [REF]0[/REF] marks. Default false'),
  include_search_results_in_stream: toggle.describe('Results as the first chunk. Default false'),
  return_search_results_as_documents: toggle.describe('Results as a tool call. Default false'),
  include_venice_system_prompt: toggle.describe("The service's own system prompt. Default true"),
  enable_e2ee: toggle.describe('Accepted and echoed. Default true'),
});
export type SvcParametersInput = z.infer<typeof SvcParametersInput>;

type Toggles = Omit<SvcParametersInput, 'character_slug'>;

/** The effective set, as it is echoed. */
export type SvcParameters = {
  readonly [Name in keyof Toggles]-?: NonNullable<Toggles[Name]>;
} & { readonly character_slug?: string };

export const SVC_PARAMETER_DEFAULTS: SvcParameters = {
  enable_e2ee: true,
  enable_web_search: 'off',
  enable_web_citations: false,
  enable_web_scraping: false,
  enable_x_search: false,
  include_venice_system_prompt: true,
  include_search_results_in_stream: false,
  return_search_results_as_documents: false,
  strip_thinking_response: false,
  disable_thinking: false,
};

/** Fills a validated input with the defaults; gives these back when nothing else is asked for. */
export function effectiveParameters(input: SvcParametersInput | undefined): SvcParameters {
  if (input === undefined) return SVC_PARAMETER_DEFAULTS;
  const given = Object.entries(input).filter(([, value]) => value !== null && value !== undefined);
  if (given.length === 0) return SVC_PARAMETER_DEFAULTS;
  // The schema has checked every given value; what is missing comes from the defaults.
  return { ...SVC_PARAMETER_DEFAULTS, ...Object.fromEntries(given) };
}

/** A model name without its suffixes, and the parameters that these set. */
export interface ModelName {
  readonly model: string;
  readonly parameters: JsonObject;
}

/** Ids such as `qwen3:0.6b` hold colons too: suffixes begin where a `name=` follows. */
const SUFFIXES = /:(?=[A-Za-z_]+=)/;

const PARAMETER_NAMES: ReadonlySet<string> = new Set(Object.keys(SvcParametersInput.shape));

/** Other names are dropped before they are copied: `__proto__` would become what they inherit. */
export function isParameterName(name: string): boolean {
  return PARAMETER_NAMES.has(name);
}

/** Splits `id:param=value&param=value`; values are URL-decoded, unknown parameters ignored. */
export function splitModelSuffixes(name: string): ModelName {
  const at = name.search(SUFFIXES);
  if (at === -1) return { model: name, parameters: {} };
  const parameters: Record<string, unknown> = {};
  for (const pair of name.slice(at + 1).split('&')) {
    const equals = pair.indexOf('=');
    if (equals === -1) continue;
    const key = pair.slice(0, equals);
    if (isParameterName(key)) parameters[key] = suffixValue(pair.slice(equals + 1));
  }
  return { model: name.slice(0, at), parameters };
}

function suffixValue(raw: string): unknown {
  const text = urlDecoded(raw);
  if (text === 'true') return true;
  if (text === 'false') return false;
  return text;
}

function urlDecoded(raw: string): string {
  try {
    return decodeURIComponent(raw);
  } catch {
    // A lone percent sign is not an encoding: the text is meant as it stands.
    return raw;
  }
}

/** Rewrites older spellings inside a parameter object; gives it back unchanged when none is there. */
export function normaliseParameters(value: unknown): unknown {
  if (!isJsonObject(value)) return value;
  const result: Record<string, unknown> = { ...value };
  if (Object.hasOwn(result, 'web_search')) {
    result['enable_web_search'] ??= result['web_search'];
    delete result['web_search'];
  }
  result['enable_web_search'] = webSearchMode(result['enable_web_search']);
  return result;
}

/** `true` and `false` are taken for `on` and `off`; everything else is left to the schema. */
export function webSearchMode(value: unknown): unknown {
  if (value === true || value === 'true') return 'on';
  if (value === false || value === 'false') return 'off';
  return value ?? undefined;
}
