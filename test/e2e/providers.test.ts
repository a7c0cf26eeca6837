/** Replays what model providers send, as published: one file of data per provider. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { type Called, call, chatBody } from '../app/call.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { type Behaviour, TestUpstream } from '../support/test-upstream.ts';

interface ToolCall {
  readonly name: string;
  readonly arguments: string;
}

interface Provider {
  readonly dialect: string;
  readonly streams?: readonly {
    readonly name: string;
    readonly deltas: readonly { readonly tool_calls?: unknown }[];
    readonly calls: readonly ToolCall[];
  }[];
}

const FOLDER = new URL('../fixtures/providers/', import.meta.url);
const PROVIDERS = readdirSync(FOLDER).map((file): readonly [name: string, data: Provider] => {
  const data = JSON.parse(readFileSync(new URL(file, FOLDER), 'utf8')) as Provider; // our own file
  return [file.replace('.json', ''), data];
});

const TOOLS = ['add', 'sub'].map((name) => ({
  type: 'function',
  function: { name, parameters: { type: 'object', properties: { a: { type: 'number' } } } },
}));
const USAGE = { prompt_tokens: 12, completion_tokens: 5, total_tokens: 17 };

function streamOf(deltas: readonly object[], finish = 'stop'): Behaviour {
  const head = { id: 'u', object: 'chat.completion.chunk', created: 1, model: 'm' };
  const event = (choices: readonly object[], more: object = {}) =>
    `data: ${JSON.stringify({ ...head, choices, ...more })}\n\n`;
  const events = deltas.map((delta) => event([{ index: 0, delta, finish_reason: null }]));
  const end = event([{ index: 0, delta: {}, finish_reason: finish }]) + event([], { usage: USAGE });
  return {
    kind: 'own',
    answer: (response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(`${events.join('')}${end}data: [DONE]\n\n`);
    },
  };
}

function jsonOf(message: object, finish = 'stop'): Behaviour {
  const choices = [{ index: 0, message, finish_reason: finish }];
  const body = JSON.stringify({ id: 'u', object: 'chat.completion', choices, usage: USAGE });
  return { kind: 'status', status: 200, body };
}

/** The data of the events of a stream. */
function eventsOf({ text }: Called) {
  return [...text.matchAll(/^data: (\{.*\})$/gm)].map(([, json = '']) => JSON.parse(json));
}

function chatCalls(called: Called): ToolCall[] {
  const calls: { id: string; name: string; arguments: string }[] = [];
  for (const { choices } of eventsOf(called)) {
    for (const piece of choices[0]?.delta.tool_calls ?? []) {
      const known = (calls[piece.index] ??= { id: piece.id, name: '', arguments: '' });
      known.name += piece.function.name ?? '';
      known.arguments += piece.function.arguments ?? '';
    }
  }
  assert.equal(new Set(calls.map(({ id }) => id)).size, calls.length);
  return calls.map(({ name, arguments: text }) => ({ name, arguments: text }));
}

describe('providers', () => {
  let upstream: TestUpstream;
  let farebox: TestApp;
  let secret: string;

  before(async () => {
    upstream = await TestUpstream.start();
    const engine = (name: string, dialect: string) =>
      `  ${name}: { url: "${upstream.url}", dialect: ${dialect} }`;
    const model = (name: string, replicas: string) =>
      `  - { id: ${name}, type: text, context: 65536, capabilities: [functionCalling, reasoning, reasoningEffort], price: { input: 1, output: 2 }, replicas: [${replicas}] }`;
    farebox = await startTestApp({
      yaml: [
        'engines:',
        ...PROVIDERS.map(([name, { dialect }]) => engine(name, dialect)),
        'models:',
        ...PROVIDERS.map(([name]) => model(name, `{ engine: ${name}, model: tiny }`)),
      ].join('\n'),
    });
    ({ secret } = await farebox.account('50'));
  });
  after(async () => {
    await farebox.audit();
    await farebox.stop();
    await upstream.kill();
  });

  const post = (path: string, body: object) => call(farebox, path, { secret, body });

  for (const [provider, { streams = [] }] of PROVIDERS) {
    for (const { name, deltas, calls } of streams) {
      test(`${provider}: ${name} are read in every protocol`, async () => {
        upstream.otherwise = streamOf(deltas);
        const chat = await post('/chat/completions', {
          ...chatBody({ stream: true, tools: TOOLS }),
          model: provider,
        });
        assert.equal(chat.status, 200, chat.text);
        assert.deepEqual(chatCalls(chat), calls);
        assert.match(chat.text, /"finish_reason":"tool_calls"/);
        const tools = TOOLS.map((tool) => ({ type: 'function', ...tool.function }));
        const input = 'Hi';
        const response = await post('/responses', { model: provider, stream: true, tools, input });
        const { output } = eventsOf(response).at(-1).response;
        const made = output.map((one: ToolCall) => ({ name: one.name, arguments: one.arguments }));
        assert.deepEqual(made, calls);
      });
    }
    const [first] = streams;
    if (first === undefined) continue;
    test(`${provider}: calls of a non-streaming response stay separate`, async () => {
      const tool_calls = first.calls.map((made, at) => {
        return { index: 0, id: `id_${at}`, type: 'function', function: made };
      });
      upstream.otherwise = jsonOf({ role: 'assistant', content: null, tool_calls });
      const response = await post('/responses', { model: provider, input: 'Hi' });
      assert.deepEqual(
        response.body.output.map((one: ToolCall) => ({ name: one.name, arguments: one.arguments })),
        first.calls,
      );
    });
  }
});
