/**
 * The settings of coding agents for this server, and their place in a file that the agent has
 * already. Other lines of the file stay, comments included. Reads and writes no file itself.
 */
import { isJsonObject } from '../json/json-scan.ts';
import { parsedJsonObject } from '../json/json-text.ts';

/** Where the server is and what the agent uses of it. */
export interface AgentSettings {
  /** `http://127.0.0.1:8402`, without a path. */
  readonly origin: string;
  readonly secret: string;
  readonly model: string;
  /** For small tasks that an agent runs beside the others. */
  readonly smallModel: string;
  /** Tokens of prompt and answer together; unknown where no server says. */
  readonly contextTokens: number | undefined;
  readonly title: string;
}

/** The name of the provider in Codex's file, and of the variable that holds its key. */
const PROVIDER = 'farebox';
export const CODEX_KEY_VARIABLE = 'FAREBOX_API_KEY';

/** The environment that Claude Code reads, from its shell or from `env` of its settings. */
export function claudeEnvironment(settings: AgentSettings): Record<string, string> {
  const { origin, secret, model, smallModel } = settings;
  return {
    // The agent adds `/v1/messages` by itself.
    ANTHROPIC_BASE_URL: `${origin}/api`,
    ANTHROPIC_AUTH_TOKEN: secret,
    ANTHROPIC_MODEL: model,
    ANTHROPIC_DEFAULT_OPUS_MODEL: model,
    ANTHROPIC_DEFAULT_SONNET_MODEL: model,
    ANTHROPIC_DEFAULT_HAIKU_MODEL: smallModel,
  };
}

/** Claude Code's `settings.json` with that environment. Throws when the file is no JSON object. */
export function withClaudeSettings(text: string | undefined, settings: AgentSettings): string {
  const known = text === undefined || text.trim() === '' ? {} : jsonObject(text);
  const env = isJsonObject(known['env']) ? known['env'] : {};
  const changed = { ...known, env: { ...env, ...claudeEnvironment(settings) } };
  return `${JSON.stringify(changed, undefined, 2)}\n`;
}

function jsonObject(text: string): Readonly<Record<string, unknown>> {
  const value = parsedJsonObject(text);
  if (value === undefined) throw new Error('It is no JSON object');
  return value;
}

/** What Codex's `config.toml` says before its first table. */
function codexRoot({ model, contextTokens }: AgentSettings): Map<string, string> {
  const root = new Map([
    ['model', tomlText(model)],
    ['model_provider', tomlText(PROVIDER)],
  ]);
  if (contextTokens !== undefined) root.set('model_context_window', String(contextTokens));
  return root;
}

/** The table of the provider; the key stands in it, or in a variable that it names. */
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

/** The lines for Codex's `config.toml`, for somebody who puts them in by hand. */
export function codexLines(settings: AgentSettings): string {
  const root = [...codexRoot(settings)].map(([name, value]) => `${name} = ${value}`);
  return [...root, '', ...codexTable(settings, 'variable')].join('\n');
}

/** Codex's `config.toml` with the provider and the model that it uses from now on. */
export function withCodexSettings(text: string | undefined, settings: AgentSettings): string {
  const root = codexRoot(settings);
  const lines = text === undefined || text === '' ? [] : text.replace(/\n$/, '').split('\n');
  const kept: string[] = [];
  /** Where the first table begins among the lines that are kept. */
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

/** `[table]` and `[[list]]`, which may stand behind white space and before a comment. */
const TABLE = /^\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$/;
const OUR_TABLE = new RegExp(`^model_providers\\s*\\.\\s*"?${PROVIDER}"?(?:\\s*\\.|$)`);
/** A member with a value on one line, as those of ours are. */
const MEMBER = /^\s*"?([A-Za-z_]+)"?\s*=\s*(?!"""|''')/;

/** The quotes of a text of several lines that is open behind this line. */
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

/** A basic string of TOML is one of JSON. */
function tomlText(text: string): string {
  return JSON.stringify(text);
}
