/**
 * Tool loops of three turns behind a provider package, over each protocol of callers: signatures of
 * reasoning return to the provider as it sent them.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { call } from '../app/call.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { EmulatedProvider } from '../support/provider-wires.ts';

const PARAMETERS = { type: 'object', properties: { city: { type: 'string' } } };

const MODELS = (url: string): string => `engines:
  gemini: { provider: '@ai-sdk/google', apiKey: key-number-one, settings: { baseURL: '${url}/v1beta' } }
  claude: { provider: '@ai-sdk/anthropic', apiKey: key-number-one, settings: { baseURL: '${url}/v1' } }
models:
  - { id: gemini-3-pro, context: 32768, capabilities: [functionCalling, reasoning], price: { input: 1, output: 2 }, replicas: [{ engine: gemini }] }
  - { id: claude-opus-4-5, context: 32768, capabilities: [functionCalling, reasoning], price: { input: 1, output: 2 }, replicas: [{ engine: claude }] }
`;

/** The response of turn `turn`: reasoning with a signature, then a call of the tool. */
function geminiReply(turn: number): unknown {
  const parts = [
    { text: `Thought ${turn}`, thought: true },
    { functionCall: { name: 'weather', args: { city: 'Oslo' } }, thoughtSignature: `sig-${turn}` },
  ];
  const candidates = [{ content: { role: 'model', parts }, finishReason: 'STOP', index: 0 }];
  const usageMetadata = { promptTokenCount: 10, candidatesTokenCount: 5, totalTokenCount: 15 };
  return { candidates, usageMetadata };
}

function claudeReply(turn: number): unknown {
  const content = [
    { type: 'thinking', thinking: `Thought ${turn}`, signature: `sig-${turn}` },
    { type: 'tool_use', id: `toolu_${turn}`, name: 'weather', input: { city: 'Oslo' } },
  ];
  const usage = { input_tokens: 10, output_tokens: 5 };
  return {
    id: 'm',
    type: 'message',
    role: 'assistant',
    model: 'c',
    content,
    stop_reason: 'tool_use',
    usage,
  };
}

type Json = ReturnType<typeof JSON.parse>;

interface Protocol {
  readonly path: string;
  readonly first: Json;
  /** Adds the response and the result of its call to the request. */
  readonly next: (request: Json, response: Json) => Json;
}

const PROTOCOLS: readonly Protocol[] = [
  {
    path: '/chat/completions',
    first: {
      messages: [{ role: 'user', content: 'Weather?' }],
      tools: [{ type: 'function', function: { name: 'weather', parameters: PARAMETERS } }],
    },
    next: (request, { choices: [{ message }] }) => {
      const result = { role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'Rain' };
      return { ...request, messages: [...request.messages, message, result] };
    },
  },
  {
    path: '/responses',
    first: {
      input: [{ role: 'user', content: 'Weather?' }],
      store: false,
      include: ['reasoning.encrypted_content'],
      tools: [{ type: 'function', name: 'weather', parameters: PARAMETERS, strict: false }],
    },
    next: (request, { output }) => {
      const made = output.find((item: Json) => item.type === 'function_call');
      const result = { type: 'function_call_output', call_id: made.call_id, output: 'Rain' };
      return { ...request, input: [...request.input, ...output, result] };
    },
  },
  {
    path: '/messages',
    first: {
      max_tokens: 4_096,
      thinking: { type: 'enabled', budget_tokens: 1_024 },
      messages: [{ role: 'user', content: 'Weather?' }],
      tools: [{ name: 'weather', input_schema: PARAMETERS }],
    },
    next: (request, { content }) => {
      const made = content.find((block: Json) => block.type === 'tool_use');
      const result = { type: 'tool_result', tool_use_id: made.id, content: 'Rain' };
      const more = [
        { role: 'assistant', content },
        { role: 'user', content: [result] },
      ];
      return { ...request, messages: [...request.messages, ...more] };
    },
  },
];

describe('tool loops behind provider packages', () => {
  let provider: EmulatedProvider;
  let farebox: TestApp;
  let secret: string;
  before(async () => {
    provider = await EmulatedProvider.open();
    farebox = await startTestApp({ yaml: MODELS(provider.url) });
    await farebox.app.localReady;
    ({ secret } = await farebox.account('10'));
  });
  after(async () => {
    await farebox.audit();
    await farebox.stop();
    await provider.close();
  });

  for (const [model, reply] of [
    ['gemini-3-pro', geminiReply],
    ['claude-opus-4-5', claudeReply],
  ] as const) {
    for (const { path, first, next } of PROTOCOLS) {
      test(`${model} gets its signatures back over ${path}`, async () => {
        let request = { ...first, model };
        for (const turn of [1, 2, 3]) {
          provider.replies = [{ status: 200, body: reply(turn) }];
          const { status, body, text } = await call(farebox, path, { secret, body: request });
          assert.equal(status, 200, text);
          const sent = JSON.parse(String(provider.requests.at(-1)?.body));
          const found = JSON.stringify(sent).match(/"sig-\d"/g) ?? [];
          const expected = [1, 2].slice(0, turn - 1).map((number) => `"sig-${number}"`);
          assert.deepEqual(found, expected, JSON.stringify(sent));
          request = next(request, body);
        }
      });
    }
  }
});
