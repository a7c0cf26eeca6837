/**
 * The settings of coding agents for this server. Merges them into the text of the agent's file and
 * keeps its other lines, comments included. Reads and writes no files.
 */
import { isJsonObject } from '../json/json-scan.ts';
import { parsedJsonObject } from '../json/json-text.ts';

export interface AgentSettings {
  /** URL without a path, such as `http://127.0.0.1:8402`. */
  readonly origin: string;
  readonly secret: string;
  readonly model: string;
  readonly smallModel: string;
  /** Tokens of prompt and completion together. */
  readonly contextTokens: number | undefined;
  readonly title: string;
}

const PROVIDER = 'farebox';
export const CODEX_KEY_VARIABLE = 'FAREBOX_API_KEY';

export function claudeEnvironment(settings: AgentSettings): Record<string, string> {
  const { origin, secret, model, smallModel } = settings;
  return {
    // The agent appends `/v1/messages`.
    ANTHROPIC_BASE_URL: `${origin}/api`,
    ANTHROPIC_AUTH_TOKEN: secret,
    ANTHROPIC_MODEL: model,
    ANTHROPIC_DEFAULT_OPUS_MODEL: model,
    ANTHROPIC_DEFAULT_SONNET_MODEL: model,
    ANTHROPIC_DEFAULT_HAIKU_MODEL: smallModel,
  };
}

/** Sets the environment in the text of `settings.json`. Throws if the text is not a JSON object. */
export function withClaudeSettings(text: string | undefined, settings: AgentSettings): string {
  const isEmpty = text === undefined || text.trim() === '';
  const known: Readonly<Record<string, unknown>> | undefined = isEmpty
    ? {}
    : parsedJsonObject(text);
  if (known === undefined) throw new Error('its text is not a JSON object; correct it first');
  const env = isJsonObject(known['env']) ? known['env'] : {};
  const changed = { ...known, env: { ...env, ...claudeEnvironment(settings) } };
  return `${JSON.stringify(changed, undefined, 2)}\n`;
}

/** Members of `config.toml` before its first table. */
function codexRoot({ model, contextTokens }: AgentSettings): Map<string, string> {
  const root = new Map([
    ['model', tomlText(model)],
    ['model_provider', tomlText(PROVIDER)],
  ]);
  if (contextTokens !== undefined) root.set('model_context_window', String(contextTokens));
  return root;
}

function codexTable(
  { origin, secret, title }: AgentSettings,
  keyIn: 'file' | 'variable',
): string[] {
  const key =
    keyIn === 'file'
      ? `experimental_bearer_token = ${tomlText(secret)}`
      : `env_key = ${tomlText(CODEX_KEY_VARIABLE)}`;
  return [
    `[model_providers.${PROVIDER}]`,
    `name = ${tomlText(title)}`,
    `base_url = ${tomlText(`${origin}/api/v1`)}`,
    key,
    'wire_api = "responses"',
  ];
}

/** The lines of `config.toml` for editing it by hand; the key is in an environment variable. */
export function codexLines(settings: AgentSettings): string {
  const root = [...codexRoot(settings)].map(([name, value]) => `${name} = ${value}`);
  return [...root, '', ...codexTable(settings, 'variable')].join('\n');
}

/** Sets the provider and the model in the text of `config.toml`. */
export function withCodexSettings(text: string | undefined, settings: AgentSettings): string {
  const root = codexRoot(settings);
  const lines = text === undefined || text === '' ? [] : text.replace(/\n$/, '').split('\n');
  const kept: string[] = [];
  let rootEnd: number | undefined;
  let isOurs = false;
  let quotes: string | undefined;
  for (const line of lines) {
    const isInText = quotes !== undefined;
    quotes = openQuotes(line, quotes);
    const table = isInText ? undefined : TABLE.exec(line)?.[1];
    if (table !== undefined) {
      rootEnd ??= kept.length;
      isOurs = OUR_TABLE.test(table);
    }
    if (isOurs) continue;
    const name = isInText || rootEnd !== undefined ? undefined : MEMBER.exec(line)?.[1];
    const value = name === undefined ? undefined : root.get(name);
    if (name === undefined || value === undefined) {
      kept.push(line);
      continue;
    }
    root.delete(name);
    kept.push(`${name} = ${value}`);
  }
  const missing = [...root].map(([name, value]) => `${name} = ${value}`);
  const at = rootEnd ?? kept.length;
  const head = [...kept.slice(0, at), ...missing];
  const tail = kept.slice(at);
  const gap = missing.length > 0 && tail.length > 0 ? [''] : [];
  const table = codexTable(settings, 'file');
  return `${[...withoutEnd([...head, ...gap, ...tail]), '', ...table].join('\n')}\n`;
}

/** `[table]` or `[[list]]`, with white space before it or a comment after it. */
const TABLE = /^\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$/;
const OUR_TABLE = new RegExp(`^model_providers\\s*\\.\\s*"?${PROVIDER}"?(?:\\s*\\.|$)`);
const MEMBER = /^\s*"?([A-Za-z_]+)"?\s*=\s*(?!"""|''')/;

/** The quotes of a multi-line string that is still open after this line. */
function openQuotes(line: string, before: string | undefined): string | undefined {
  let open = before;
  for (const [quotes] of line.matchAll(/"""|'''/g)) {
    if (open === undefined) open = quotes;
    else if (open === quotes) open = undefined;
  }
  return open;
}

function withoutEnd(lines: readonly string[]): readonly string[] {
  const last = lines.findLastIndex((line) => line.trim() !== '');
  return lines.slice(0, last + 1);
}

/** A JSON string is a valid basic string of TOML. */
function tomlText(text: string): string {
  return JSON.stringify(text);
}
