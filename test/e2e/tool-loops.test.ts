/**
 * Tool loops that change the engine in each turn: between dialects of chat completions, Anthropic's
 * Messages API and OpenAI's Responses API. Callers of every protocol send back what they received.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import { type Called, call } from '../app/call.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { AnthropicEngine, signatureOf } from '../support/anthropic-engine.ts';
import { functionCall, reasoning, responds } from '../support/responses-engine.ts';
import { behave, type Behaviour, TestUpstream } from '../support/test-upstream.ts';

type Json = Called['body'];

const DIALECTS = ['self-hosted', 'openai', 'gemini', 'groq', 'mistral', 'openrouter'];
const MODELS = [...DIALECTS, 'anthropic', 'responses'];
const NAME = 'add';
/** A signature of the engine, or the one that its provider documents for calls of other models. */
const GEMINI_SIGNATURE = /^(?:sig-\d+|skip_thought_signature_validator)$/;
const SCHEMA = { type: 'object', properties: { a: { type: 'number' } } };

/** A client that keeps the history of its protocol. */
interface Client {
  readonly path: string;
  body(history: readonly Json[], stream: boolean): object;
  /** The output of the response, and the calls in it. */
  read(answer: Called, stream: boolean): { readonly output: Json[]; readonly ids: string[] };
  result(ids: readonly string[]): Json[];
}

function eventsOf({ text }: Called): Json[] {
  return [...text.matchAll(/^data: (\{.*\})$/gm)].map(([, json = '']) => JSON.parse(json));
}

const CLIENTS: readonly Client[] = [
  {
    path: '/chat/completions',
    body: (messages, stream) => ({
      messages,
      stream,
      reasoning_effort: 'high',
      tools: [{ type: 'function', function: { name: NAME, parameters: SCHEMA } }],
    }),
    read: (answer, stream) => {
      const message = stream ? foldedChat(eventsOf(answer)) : answer.body.choices[0].message;
      return { output: [message], ids: message.tool_calls.map(({ id }: Json) => id) };
    },
    result: (ids) => ids.map((tool_call_id) => ({ role: 'tool', tool_call_id, content: '3' })),
  },
  {
    path: '/responses',
    body: (input, stream) => ({
      input,
      stream,
      store: false,
      include: ['reasoning.encrypted_content'],
      reasoning: { effort: 'high' },
      tools: [{ type: 'function', name: NAME, parameters: SCHEMA }],
    }),
    read: (answer, stream) => {
      const { output } = stream ? eventsOf(answer).at(-1).response : answer.body;
      return { output, ids: output.flatMap(({ call_id }: Json) => call_id ?? []) };
    },
    result: (ids) => ids.map((call_id) => ({ type: 'function_call_output', call_id, output: '3' })),
  },
  {
    path: '/messages',
    body: (messages, stream) => ({
      messages,
      stream,
      max_tokens: 8_000,
      thinking: { type: 'enabled', budget_tokens: 2_000 },
      tools: [{ name: NAME, input_schema: SCHEMA }],
    }),
    read: (answer, stream) => {
      const content = stream ? foldedMessage(eventsOf(answer)) : answer.body.content;
      const ids = content.flatMap(({ type, id }: Json) => (type === 'tool_use' ? id : []));
      return { output: [{ role: 'assistant', content }], ids };
    },
    result: (ids) => [
      {
        role: 'user',
        content: ids.map((id) => ({ type: 'tool_result', tool_use_id: id, content: '3' })),
      },
    ],
  },
];

function foldedChat(events: readonly Json[]): Json {
  const message: Json = { role: 'assistant', content: '', tool_calls: [] };
  for (const { choices } of events) {
    const { delta = {} } = choices?.[0] ?? {};
    message.content += delta.content ?? '';
    for (const name of ['reasoning_content', 'reasoning_details']) {
      if (delta[name] === undefined || delta[name] === null) continue;
      message[name] = message[name] === undefined ? delta[name] : message[name].concat(delta[name]);
    }
    for (const { index, ...piece } of delta.tool_calls ?? []) {
      const known = message.tool_calls[index];
      if (known === undefined) message.tool_calls[index] = piece;
      else known.function.arguments += piece.function.arguments;
    }
  }
  return message;
}

function foldedMessage(events: readonly Json[]): Json[] {
  const content: Json[] = [];
  const inputs: string[] = [];
  for (const { type, index, content_block, delta } of events) {
    if (type === 'content_block_start') content[index] = content_block;
    if (type !== 'content_block_delta') continue;
    if (delta.type === 'input_json_delta')
      inputs[index] = (inputs[index] ?? '') + delta.partial_json;
    else {
      const { type: _kind, ...members } = delta;
      for (const [name, value] of Object.entries(members)) content[index][name] += String(value);
    }
  }
  for (const [index, text] of inputs.entries()) {
    if (text) content[index].input = JSON.parse(text);
  }
  return content;
}

describe('a tool loop', () => {
  let upstream: TestUpstream;
  let claude: AnthropicEngine;
  let farebox: TestApp;
  let count = 0;
  /** Number of calls side by side in the next response. */
  let callCount = 1;
  /** Requests that a provider would reject. */
  const problems: string[] = [];

  before(async () => {
    upstream = await TestUpstream.start();
    claude = await AnthropicEngine.start();
    const engine = (name: string) =>
      name === 'anthropic'
        ? `  anthropic: { protocol: anthropic, url: "${claude.url}" }`
        : name === 'responses'
          ? `  responses: { protocol: responses, url: "${upstream.url}" }`
          : `  ${name}: { url: "${upstream.url}", dialect: ${name} }`;
    farebox = await startTestApp({
      yaml: [
        'engines:',
        ...MODELS.map(engine),
        'models:',
        ...MODELS.map(
          (name) =>
            `  - { id: ${name}, type: text, context: 200000, maxCompletionTokens: 32000, capabilities: [functionCalling, reasoning, reasoningEffort], price: { input: 1, output: 2 }, replicas: [{ engine: ${name}, model: at-${name} }] }`,
        ),
        'limits: { plans: { staff: { text: { XS: &wide { requestsPerMinute: 100000, tokensPerMinute: 100000000 }, S: *wide, M: *wide, L: *wide } } } }',
      ].join('\n'),
    });
    upstream.otherwise = {
      kind: 'own',
      answer: (response, text) => {
        const body = JSON.parse(text);
        const problem = problemOf(body);
        if (problem !== undefined) problems.push(`${body.model}: ${problem}`);
        void behave(callsOf(body.model), response, { model: 'm', body: text });
      },
    };
  });
  after(async () => {
    try {
      await farebox.audit();
    } finally {
      await farebox.stop();
      await upstream.kill();
      await claude.stop();
    }
  });

  /** The next response of an engine, in its own form. */
  function callsOf(model: string): Behaviour {
    count += 1;
    const numbers = Array.from({ length: callCount }, (_, at) => at);
    const made = { name: NAME, arguments: '{"a":1}' };
    if (model === 'at-responses') {
      const output = [
        reasoning(`rs_${count}`, ['Sealed'], `gAAA${count}`),
        ...numbers.map((at) => functionCall(`${count}_${at}`, NAME, { a: 1 })),
      ];
      return responds({ output });
    }
    const extra_content = { google: { thought_signature: `sig-${count}` } };
    const isGemini = model === 'at-gemini';
    // Some engines count their calls from zero in each response.
    const idOf = (at: number): string =>
      isGemini
        ? `function-call-${at}`
        : model === 'at-mistral'
          ? `abcdef12${at}`
          : `call:${count}:${at}`;
    const tool_calls = numbers.map((at) => ({
      index: isGemini ? 0 : at,
      id: idOf(at),
      type: 'function',
      function: made,
      ...(isGemini && at === 0 ? { extra_content } : {}),
    }));
    const message = {
      role: 'assistant',
      content: null,
      reasoning_content: 'Plain',
      tool_calls,
    };
    const usage = { prompt_tokens: 9, completion_tokens: 5, total_tokens: 14 };
    return {
      kind: 'own',
      answer: (response, text) => {
        const isStream = JSON.parse(text).stream === true;
        const choice = { index: 0, finish_reason: 'tool_calls' };
        const head = { id: 'u', created: 1, model: 'm', usage };
        if (!isStream) {
          response.writeHead(200, { 'content-type': 'application/json' });
          response.end(JSON.stringify({ ...head, choices: [{ ...choice, message }] }));
          return;
        }
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        const chunk = { ...head, choices: [{ ...choice, delta: message }] };
        response.end(`data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n`);
      },
    };
  }

  function problemOf({ model, messages, input }: Json): string | undefined {
    if (model === 'at-responses') return responsesProblem(input);
    const text = JSON.stringify(messages);
    if (/anthropic-claude-v1|openai-responses-v1/.test(text) && model === 'at-openai') {
      return 'reasoning of another provider';
    }
    const open = new Set<string>();
    for (const { role, tool_calls: calls = [], tool_call_id: id, ...message } of messages) {
      if (role !== 'tool' && open.size > 0) return 'a call without result';
      const signature = calls[0]?.extra_content?.google?.thought_signature;
      if (model === 'at-gemini' && calls.length > 0 && !GEMINI_SIGNATURE.test(signature))
        return `a call with the signature ${signature}`;
      if (role === 'tool' && !open.delete(id)) return `a result without call: ${id}`;
      for (const call of calls) {
        if (open.has(call.id)) return `two calls with the id ${call.id}`;
        open.add(call.id);
        if (model === 'at-mistral' && !/^[A-Za-z0-9]{9}$/.test(call.id)) return `the id ${call.id}`;
        if (model !== 'at-gemini' && model === 'at-openai' && call.extra_content)
          return 'extra_content';
      }
      const isStrict = model === 'at-groq' || model === 'at-mistral';
      if (isStrict && message.reasoning_content !== undefined) return 'reasoning_content';
    }
    return undefined;
  }

  function responsesProblem(input: Json[]): string | undefined {
    const open = new Set<string>();
    for (const { type, call_id: id, encrypted_content: data } of input) {
      if (type === 'function_call') open.add(id);
      if (type === 'function_call_output' && !open.delete(id))
        return `a result without call: ${id}`;
      if (type === 'reasoning' && !/^gAAA\d+$/.test(data)) return `the reasoning ${data}`;
    }
    return open.size === 0 ? undefined : 'a call without result';
  }

  for (const client of CLIENTS) {
    test(`of ${client.path} never fails`, async () => {
      const turn = fc.record({
        model: fc.constantFrom(...MODELS),
        stream: fc.boolean(),
        calls: fc.integer({ min: 1, max: 3 }),
        /** Whether the user writes after the results. */
        says: fc.boolean(),
      });
      await fc.assert(
        fc.asyncProperty(fc.array(turn, { minLength: 2, maxLength: 8 }), async (turns) => {
          const history: Json[] = [{ role: 'user', content: 'Add' }];
          for (const { model, stream, calls, says } of turns) {
            count += 1;
            callCount = calls;
            claude.script.length = 0;
            claude.seen.length = 0;
            claude.script.push({
              content: [
                { type: 'thinking', thinking: `Thought ${count}` },
                ...Array.from({ length: calls }, (_, at) => {
                  return {
                    type: 'tool_use',
                    id: `toolu_${count}_${at}`,
                    name: NAME,
                    input: { a: 1 },
                  };
                }),
              ],
            });
            const { secret } = farebox.owner;
            const body = { model, ...client.body(history, stream) };
            const answer = await call(farebox, client.path, { secret, body });
            assert.equal(answer.status, 200, `${model}: ${answer.text}`);
            assert.deepEqual(problems.splice(0), []);
            const { output, ids } = client.read(answer, stream);
            assert.equal(ids.length, calls, answer.text);
            history.push(...output, ...client.result(ids));
            if (says) history.push({ role: 'user', content: 'Go on' });
            if (model === 'anthropic') {
              assert.ok(
                claude.seen.every(({ usage }) => usage !== undefined),
                'nothing is rejected',
              );
            }
          }
        }),
        { numRuns: 25 },
      );
    });

    test(`of ${client.path} returns signed reasoning to its engine after turns of others`, async () => {
      const history: Json[] = [{ role: 'user', content: 'Add' }];
      let thought = '';
      callCount = 1;
      for (const model of ['anthropic', 'mistral', 'responses', 'anthropic']) {
        thought ||= `Thought of ${client.path}`;
        claude.script.length = 0;
        claude.seen.length = 0;
        claude.script.push({
          content: [
            { type: 'thinking', thinking: thought },
            { type: 'tool_use', id: `toolu_${(count += 1)}`, name: NAME, input: { a: 1 } },
          ],
        });
        const { secret } = farebox.owner;
        const body = { model, ...client.body(history, false) };
        const answer = await call(farebox, client.path, { secret, body });
        assert.equal(answer.status, 200, answer.text);
        const { output, ids } = client.read(answer, false);
        history.push(...output, ...client.result(ids));
      }
      const sent = claude.seen[0]?.body.messages[1]?.content;
      const signed = { type: 'thinking', thinking: thought, signature: signatureOf(thought) };
      assert.deepEqual(Array.isArray(sent) ? sent[0] : sent, signed);
    });
  }
});
