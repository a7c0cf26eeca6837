/**
 * Service parameters of a chat request: their schema, defaults, and sources (the body under two
 * names, tool types, suffixes of the model name). Unknown keys are ignored.
 */
import * as z from 'zod';
import { percentDecoded } from '../../core/percent-decoding.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import { withoutNulls } from '../../json/json-text.ts';

const toggle = z.boolean().nullish();
const SearchMode = z.enum(['off', 'on', 'auto']);

export const SvcParametersInput = z.object({
  character_slug: z.string().min(1).max(256).nullish().describe('Persona from `GET /characters`.'),
  strip_thinking_response: toggle.describe('Removes `<think>` blocks. Default false.'),
  disable_thinking: toggle.describe('Turns reasoning off, if supported. Default false.'),
  enable_web_search: SearchMode.nullish().describe(
    'Web search, charged per search: `on` before the completion, `auto` if the model decides to. Default `off`.',
  ),
  enable_web_scraping: toggle.describe(
    'Reads up to 5 pages of the prompt, each charged. Default false.',
  ),
  enable_x_search: toggle.describe("Uses the engine's own search, charged. Default false."),
  enable_web_citations: toggle.describe('Requests citation marks `[REF]0[/REF]`. Default false.'),
  include_search_results_in_stream: toggle.describe('Sends citations in the first chunk.'),
  return_search_results_as_documents: toggle.describe('Sends citations as a tool call.'),
  include_venice_system_prompt: toggle.describe("Adds the service's system prompt. Default true."),
  enable_e2ee: toggle.describe('No effect. Default true.'),
});
export type SvcParametersInput = z.infer<typeof SvcParametersInput>;

type Toggles = Omit<SvcParametersInput, 'character_slug'>;

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

/** Returns the defaults themselves if nothing is set. */
export function effectiveParameters(input: SvcParametersInput | undefined): SvcParameters {
  if (input === undefined) return SVC_PARAMETER_DEFAULTS;
  const given = Object.entries(input).filter(([, value]) => value !== null && value !== undefined);
  if (given.length === 0) return SVC_PARAMETER_DEFAULTS;
  return { ...SVC_PARAMETER_DEFAULTS, ...Object.fromEntries(given) };
}

const PARAMETER_NAMES: ReadonlySet<string> = new Set(Object.keys(SvcParametersInput.shape));

/** Ids such as `qwen3:0.6b` contain colons too, so a suffix must contain `name=`. */
const SUFFIXES = /:(?=[A-Za-z_][A-Za-z0-9_]{0,99}=)/;

type Fields = Record<string, unknown>;

/**
 * Moves the service parameters of a body into `svc_parameters`, over those requested by tools.
 * Later sources win: `web_search`, the parameter object, suffixes of the model name.
 */
export function takeParameters(fields: Fields, serviceName: string, asked: Fields): void {
  for (const key of ['web_search', 'enable_web_search']) {
    if (!Object.hasOwn(fields, key)) continue;
    asked['enable_web_search'] = isJsonObject(fields[key]) ? 'on' : webSearchMode(fields[key]);
    delete fields[key];
  }
  let refused: unknown;
  for (const key of ['svc_parameters', `${serviceName}_parameters`]) {
    // A service called `svc` has one name for both.
    if (!Object.hasOwn(fields, key)) continue;
    const given = fields[key];
    if (isJsonObject(given)) {
      const { web_search, enable_web_search, ...others } = given;
      assignKnown(asked, others);
      assignKnown(asked, { enable_web_search: webSearchMode(enable_web_search ?? web_search) });
    } else {
      refused = given;
    }
    delete fields[key];
  }
  const { model } = fields;
  const at = typeof model === 'string' ? model.search(SUFFIXES) : -1;
  if (typeof model === 'string' && at !== -1) {
    fields['model'] = model.slice(0, at);
    for (const pair of model.slice(at + 1).split('&')) {
      const [key = '', ...value] = pair.split('=');
      if (value.length > 0) assignKnown(asked, { [key]: suffixValue(value.join('=')) });
    }
  }
  const wanted = refused ?? asked;
  if (!isJsonObject(wanted) || Object.keys(wanted).length > 0) fields['svc_parameters'] = wanted;
}

/** Copies known names only: `__proto__` would change the prototype. */
function assignKnown(into: Fields, from: JsonObject): void {
  for (const [key, value] of Object.entries(from)) {
    if (value !== undefined && value !== null && PARAMETER_NAMES.has(key)) into[key] = value;
  }
}

function suffixValue(raw: string): unknown {
  const text = percentDecoded(raw);
  return text === 'true' || text === 'false' ? text === 'true' : text;
}

function webSearchMode(value: unknown): unknown {
  if (value === true || value === 'true') return 'on';
  if (value === false || value === 'false') return 'off';
  return value ?? undefined;
}

/** Whether this type of tool, such as `web_search_preview`, is a search by the server. */
export function isSearchTool(type: unknown): boolean {
  return typeof type === 'string' && type.startsWith('web_search');
}

/**
 * The service parameters of an agent protocol: those of its body, over the search of its hosted
 * search tool.
 */
export function agentParameters(
  body: JsonObject,
  serviceName: string,
  search: 'on' | 'auto' | undefined,
): JsonObject {
  const given = body['svc_parameters'];
  const named = body[`${serviceName}_parameters`];
  return {
    ...(search !== undefined && { enable_web_search: search, enable_web_citations: true }),
    ...(isJsonObject(given) && withoutNulls(given)),
    ...(isJsonObject(named) && withoutNulls(named)),
  };
}
