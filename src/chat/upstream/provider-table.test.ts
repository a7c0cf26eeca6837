/** The table of the documentation with the parts of a chat that each provider keeps is computed from real requests. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { type Provider, PROVIDERS } from '../../../test/support/providers.ts';
import { Fault } from '../../core/faults.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import { parseChatRequest } from '../wire/chat-request.ts';
import { engineDialect, type EngineDialect } from '../wire/engine-dialect.ts';
import { engineFields } from '../wire/engine-request.ts';
import { STOP_LIMITS } from '../wire/request-fields.ts';
import { REASONING_FORMAT } from './anthropic/reasoning.ts';
import { UPSTREAMS } from './upstreams.ts';

const PAGE = new URL('../../../docs/operate/providers.md', import.meta.url);
const SECTION = '## Parts of a chat that each provider keeps';
const NAMES: Readonly<Record<string, string>> = {
  anthropic: 'Anthropic (compatible API)',
  azure: 'Azure',
  bedrock: 'Bedrock (compatible API)',
  deepseek: 'DeepSeek',
  fireworks: 'Fireworks',
  gemini: 'Gemini',
  'github-models': 'GitHub Models',
  groq: 'Groq',
  litellm: 'LiteLLM',
  'llama-cpp': 'llama.cpp',
  'lm-studio': 'LM Studio',
  mistral: 'Mistral',
  ollama: 'Ollama',
  openai: 'OpenAI',
  openrouter: 'OpenRouter',
  sglang: 'SGLang',
  tgi: 'TGI',
  together: 'Together',
  vllm: 'vLLM',
  xai: 'xAI',
};
const HEAD = [
  'provider',
  'cache marks',
  'reasoning of the history',
  'signatures of Gemini',
  'last message of the assistant',
  '`disable_thinking`',
  'seed',
  'stop texts',
  '`n`',
  '`logprobs`',
  'response schema',
  'reasoning in the usage',
];

type Protocol = keyof typeof UPSTREAMS | 'openai';

function dialectOf(data: Partial<Provider>, protocol: Protocol): EngineDialect {
  const dialect = (data.dialect ?? 'openai') as 'openai'; // of our own file
  const { quirks = {} } = (data.settings ?? {}) as { quirks?: object };
  const settings = {
    url: 'http://127.0.0.1/v1',
    dialect,
    quirks,
    continuousUsage: false,
    protocol,
  };
  return engineDialect(settings);
}

const USER = { role: 'user', content: 'Hi' };
const FUNCTION = { name: 'f', parameters: { type: 'object' } };
const SCHEMA = { type: 'object', properties: {} };

/** The body for the engine, or `undefined` if it is a 400. */
function sent(dialect: EngineDialect, fields: JsonObject, stops?: number): JsonObject | undefined {
  const body = { model: 'm', messages: [USER], ...fields };
  const request = parseChatRequest(Buffer.from(JSON.stringify(body)), { serviceName: 'svc' });
  const stop = stops === undefined ? undefined : { stop: Array.from({ length: stops }, String) };
  const names = ['functionCalling', 'reasoning', 'reasoningEffort', 'responseSchema', 'logProbs'];
  const target = {
    model: 'engine-m',
    dialect,
    abilities: { capabilities: new Set(names) as never },
    maxOutputTokens: 5_000,
    mayPrefill: true,
  };
  try {
    // More stop texts than a chat has are of Messages.
    const chat = engineFields({ ...request, fields: { ...request.fields, ...stop } }, target);
    const { protocol } = dialect;
    if (protocol === 'openai') return JSON.parse(JSON.stringify(chat)) as JsonObject;
    const made = UPSTREAMS[protocol].writeRequest(chat, { own: undefined, refusal: undefined });
    return JSON.parse(JSON.stringify(made)) as JsonObject;
  } catch (error) {
    assert.ok(error instanceof Fault && error.status === 400, String(error));
    return undefined;
  }
}

function has(body: JsonObject | undefined, text: string): boolean {
  return JSON.stringify(body ?? {}).includes(text);
}

function keeps(isKept: boolean): string {
  return isKept ? 'kept' : 'left out';
}

/** The marks of a chat are passed on as they are; those of Messages only if the dialect reads them. */
function marksOf({ protocol, cacheMarks }: EngineDialect, isKept: boolean): string {
  const ofMessages = cacheMarks && (protocol === 'openai' || isKept);
  if (!isKept && !ofMessages) return 'left out';
  return isKept && ofMessages ? 'kept' : 'kept in chats';
}

function seedOf(body: JsonObject | undefined): string {
  const name = Object.keys(body ?? {}).find((one) => one.includes('seed'));
  return name === undefined ? '400' : `\`${name}\``;
}

function rowOf(name: string, dialect: EngineDialect): string[] {
  const marked = { type: 'text', text: 'Hi', cache_control: { type: 'ephemeral' } };
  const marks = sent(dialect, { messages: [{ role: 'user', content: [marked] }] });
  const call = { id: 'abcdefghi', type: 'function', function: { name: 'f', arguments: '{}' } };
  const result = { role: 'tool', tool_call_id: 'abcdefghi', content: '3' };
  const tools = [{ type: 'function', function: FUNCTION }];
  const turn = (members: object, ofCall: object = {}): JsonObject => ({
    tools,
    messages: [
      USER,
      { role: 'assistant', content: null, tool_calls: [{ ...call, ...ofCall }], ...members },
      result,
    ],
  });
  const text = { type: 'reasoning.text', text: 'Hm', signature: 'sig-1', format: REASONING_FORMAT };
  const secret = {
    type: 'reasoning.encrypted',
    id: 'rs_1',
    data: 'enc-1',
    format: 'openai-responses-v1',
  };
  const history = sent(
    dialect,
    turn({ reasoning_content: 'thought-1', reasoning_details: [text, secret] }),
  );
  const parts = [
    has(history, 'thought-1') && 'text',
    has(history, 'sig-1') && 'signatures',
    has(history, 'enc-1') && 'encrypted',
  ].filter(Boolean);
  const signature = { extra_content: { google: { thought_signature: 'sig-2' } } };
  const prefilled = sent(dialect, { messages: [USER, { role: 'assistant', content: 'I' }] });
  const plain = sent(dialect, {});
  const off = sent(dialect, { svc_parameters: { disable_thinking: true } }) ?? {};
  const thinking = Object.entries(off).filter(
    ([key, value]) => JSON.stringify(value) !== JSON.stringify(plain?.[key]),
  );
  const stops = [STOP_LIMITS.messages, 16, 5, 4].find((count) => sent(dialect, {}, count));
  const json_schema = { name: 'r', strict: true, schema: SCHEMA };
  const schema = sent(dialect, { response_format: { type: 'json_schema', json_schema } }) ?? {};
  const place = ['response_format', 'output_config', 'text'].find((one) =>
    isJsonObject(schema[one]),
  );
  const logprobs = sent(dialect, { logprobs: true });
  return [
    name,
    marksOf(dialect, has(marks, 'cache_control')),
    parts.join(', ') || 'left out',
    keeps(has(sent(dialect, turn({}, signature)), 'sig-2')),
    prefilled === undefined ? '400' : 'continued',
    thinking.map(([key, value]) => `\`${key}: ${short(value)}\``).join(', '),
    seedOf(sent(dialect, { seed: 7 })),
    stops === undefined ? '400' : String(stops),
    sent(dialect, { n: 2 })?.['n'] === 2 ? 'kept' : '400',
    logprobs === undefined ? '400' : keeps(has(logprobs, 'logprobs')),
    `\`${place}\``,
    dialect.countsReasoning ? 'in `completion_tokens`' : 'in `total_tokens`',
  ];
}

function short(value: unknown): string {
  return JSON.stringify(value).replaceAll('"', '').replaceAll(':', ': ');
}

test('the documentation shows which parts of a chat each provider keeps', () => {
  const known = PROVIDERS.flatMap(([name, data]) => {
    const shown = NAMES[name];
    return shown === undefined ? [] : [rowOf(shown, dialectOf(data, 'openai'))];
  });
  assert.equal(known.length, Object.keys(NAMES).length);
  const rows = [
    ...known,
    rowOf('`protocol: anthropic`', dialectOf({}, 'anthropic')),
    rowOf('`protocol: responses`', dialectOf({}, 'responses')),
  ];
  // Providers with equal cells are in one row.
  const groups = Map.groupBy(rows, ([, ...others]) => others.join(' | '));
  const merged = [...groups.values()].map((equal) => {
    return [equal.map(([name]) => name).join(', '), ...(equal[0]?.slice(1) ?? [])];
  });
  const table = [HEAD, HEAD.map(() => '---'), ...merged].map((cells) => `| ${cells.join(' | ')} |`);
  const page = readFileSync(PAGE, 'utf8');
  const section = page.slice(page.indexOf(SECTION) + SECTION.length).split('\n## ')[0] ?? '';
  const shown = section.split('\n').filter((line) => line.startsWith('|'));
  const cells = (line: string): string[] => line.split('|').map((cell) => cell.trim());
  const isRule = (line: string): boolean => /^[|\s-]+$/.test(line);
  assert.deepEqual(
    shown.filter((line) => !isRule(line)).map(cells),
    table.filter((line) => !isRule(line)).map(cells),
    `The section "${SECTION}" must have this table:\n${table.join('\n')}`,
  );
});
