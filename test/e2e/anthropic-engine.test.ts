/** Engines of Anthropic's Messages API, called through each protocol of callers. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import fc from 'fast-check';
import { type Called, call } from '../app/call.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import {
  AnthropicEngine,
  type Block,
  signatureOf,
  type Usage,
} from '../support/anthropic-engine.ts';
import { TestUpstream } from '../support/test-upstream.ts';
import { until } from '../support/until.ts';
import { TestWeb } from '../web/test-web.ts';

const WIDE_LIMITS = `limits: { plans: { staff: { text: { XS: &wide { requestsPerMinute: 100000, tokensPerMinute: 100000000 }, S: *wide, M: *wide, L: *wide } } } }`;
const PRICE = { input: 3, output: 15, cacheInput: 0.3, cacheWrite: 3.75 };

let engine: AnthropicEngine;
let upstream: TestUpstream;
let web: TestWeb;
let farebox: TestApp;

before(async () => {
  engine = await AnthropicEngine.start();
  upstream = await TestUpstream.start();
  web = await TestWeb.start();
  web.results = [
    { title: 'Tides', url: 'https://example.com/tides', content: 'The moon pulls the sea' },
  ];
  const model = (id: string, replicas: string) =>
    `  - { id: ${id}, type: text, context: 200000, maxCompletionTokens: 32000, capabilities: [functionCalling, reasoning, reasoningEffort, responseSchema, vision], price: ${JSON.stringify(PRICE)}, replicas: [${replicas}] }`;
  farebox = await startTestApp({
    yaml: `
engines:
  claude: { protocol: anthropic, url: "${engine.url}", apiKey: "sk-test", addedPromptTokens: 2000 }
  caching: { protocol: anthropic, url: "${engine.url}", apiKey: "sk-test", cachePrompts: true }
  rack: { url: "${upstream.url}" }
models:
${model('cached', '{ engine: caching, model: claude-opus }')}
${model('opus', '{ engine: claude, model: claude-opus }')}
${model('million', '{ engine: claude, model: claude-opus }').replace('200000', '1000000')}
${model('both', '{ engine: claude, model: claude-opus, order: 1 }, { engine: rack, model: tiny, order: 2 }')}
search: { provider: searxng, url: "${web.url}" }
fetch: { allow: ["127.0.0.0/8"] }
${WIDE_LIMITS}
`,
  });
});
after(async () => {
  try {
    await farebox.audit();
  } finally {
    await farebox.stop();
    await engine.stop();
    await upstream.kill();
    await web.stop();
  }
});
beforeEach(() => {
  upstream.seen.length = 0;
  upstream.script.length = 0;
  engine.seen.length = 0;
  engine.script.length = 0;
});

function post(path: string, body: object): Promise<Called> {
  return call(farebox, path, { secret: farebox.owner.secret, body: { model: 'opus', ...body } });
}

async function balance(): Promise<bigint> {
  const { ledger } = farebox.app.stores;
  return (await ledger.balances(farebox.owner.accountId)).usdNano;
}

function chunksOf({ text }: Called) {
  return [...text.matchAll(/^data: (\{.*\})$/gm)].map(([, json = '']) => JSON.parse(json));
}

const TOOL = {
  type: 'function',
  function: { name: 'add', description: 'Adds', parameters: { type: 'object', properties: {} } },
};
const THOUGHT = [
  { type: 'thinking', thinking: 'First "this"\nthen é😀' },
  { type: 'redacted_thinking', data: 'redacted-1' },
  { type: 'text', text: 'Let me "see" é😀.' },
  { type: 'tool_use', id: 'toolu_1', name: 'add', input: { a: 1, text: 'q"\n' } },
  { type: 'tool_use', id: 'toolu_2', name: 'add', input: {} },
];

const SIGNED = THOUGHT.map((block) =>
  block.type === 'thinking' ? { ...block, signature: signatureOf(block.thinking) } : block,
);

/** Folds the chunks of a stream into a message. */
function folded(called: Called) {
  const message: Called['body'] = { content: '', reasoning_content: '', tool_calls: [] };
  let finish: unknown;
  for (const { choices } of chunksOf(called)) {
    const [choice] = choices;
    if (choice === undefined) continue;
    const { content, reasoning_content, reasoning_details, annotations, tool_calls } = choice.delta;
    message['content'] += content ?? '';
    message['reasoning_content'] += reasoning_content ?? '';
    for (const [name, list] of Object.entries({ reasoning_details, annotations })) {
      if (list !== undefined) message[name] = [...(message[name] ?? []), ...list];
    }
    for (const { index, id, function: made } of tool_calls ?? []) {
      message['tool_calls'][index] ??= {
        id,
        type: 'function',
        function: { ...made, arguments: '' },
      };
      message['tool_calls'][index].function.arguments += made.arguments;
    }
    finish = choice.finish_reason ?? finish;
  }
  return { message, finish };
}

describe('an engine of the Messages API', () => {
  for (const stream of [false, true]) {
    test(`completes a chat with reasoning and tools${stream ? ' as a stream' : ''}`, async () => {
      engine.script.push({ content: THOUGHT });
      const messages: object[] = [
        {
          role: 'system',
          content: [{ type: 'text', text: 'Be brief', cache_control: { type: 'ephemeral' } }],
        },
        { role: 'user', content: 'Hello' },
      ];
      const more = {
        stream,
        tools: [TOOL],
        reasoning_effort: 'high',
        max_completion_tokens: 4_000,
        stop: ['END'],
      };
      const first = await post('/chat/completions', { messages, ...more });
      assert.equal(first.status, 200, first.text);
      const { message, finish } = stream
        ? folded(first)
        : { message: first.body.choices[0].message, finish: first.body.choices[0].finish_reason };
      const signature = signatureOf('First "this"\nthen é😀');
      assert.equal(message['content'], 'Let me "see" é😀.');
      assert.equal(message['reasoning_content'], 'First "this"\nthen é😀');
      assert.equal(finish, 'tool_calls');
      assert.deepEqual(message['reasoning_details'], [
        {
          type: 'reasoning.text',
          text: 'First "this"\nthen é😀',
          signature,
          format: 'anthropic-claude-v1',
          index: 0,
        },
        {
          type: 'reasoning.encrypted',
          data: 'redacted-1',
          format: 'anthropic-claude-v1',
          index: 1,
        },
      ]);
      const calls = message['tool_calls'].map(({ id, function: made }: Called['body']) => [
        id,
        made.name,
        JSON.parse(made.arguments),
      ]);
      assert.deepEqual(calls, [
        ['toolu_1', 'add', { a: 1, text: 'q"\n' }],
        ['toolu_2', 'add', {}],
      ]);
      const [seen] = engine.seen;
      assert.ok(seen !== undefined);
      assert.equal(seen.path, '/v1/messages');
      assert.equal(seen.headers['x-api-key'], 'sk-test');
      assert.deepEqual(seen.body, {
        model: 'claude-opus',
        max_tokens: 4_000,
        system: [{ type: 'text', text: 'Be brief', cache_control: { type: 'ephemeral' } }],
        messages: [{ role: 'user', content: [{ type: 'text', text: 'Hello' }] }],
        tools: [
          { name: 'add', description: 'Adds', input_schema: { type: 'object', properties: {} } },
        ],
        stop_sequences: ['END'],
        thinking: { type: 'adaptive' },
        output_config: { effort: 'high' },
        ...(stream ? { stream: true } : {}),
      });

      engine.script.push({ content: [{ type: 'text', text: 'Two' }] });
      messages.push(
        { role: 'assistant', ...message },
        { role: 'tool', tool_call_id: 'toolu_1', content: '1' },
        {
          role: 'tool',
          tool_call_id: 'toolu_2',
          content: [{ type: 'text', text: '2', cache_control: { type: 'ephemeral' } }],
        },
        { role: 'user', content: 'And?' },
      );
      const second = await post('/chat/completions', { messages, ...more });
      assert.equal(second.status, 200, second.text);
      assert.deepEqual(engine.seen[1]?.body.messages.slice(1), [
        {
          role: 'assistant',
          content: SIGNED,
        },
        {
          role: 'user',
          content: [
            { type: 'tool_result', tool_use_id: 'toolu_1', content: '1' },
            {
              type: 'tool_result',
              tool_use_id: 'toolu_2',
              content: [{ type: 'text', text: '2' }],
              cache_control: { type: 'ephemeral' },
            },
            { type: 'text', text: 'And?' },
          ],
        },
      ]);
    });
  }

  for (const [name, value] of [
    ['seed', 7],
    ['n', 2],
    ['logit_bias', { 5: 1 }],
    ['stop', ['\n\n']],
    ['frequency_penalty', 0.5],
    ['response_format', { type: 'json_object' }],
  ] as const) {
    test(`${name}, which the protocol lacks, is rejected before the engine`, async () => {
      const seen = engine.seen.length;
      const messages = [{ role: 'user', content: 'Hello' }];
      const refused = await post('/chat/completions', { messages, [name]: value });
      assert.equal(refused.status, 400, refused.text);
      assert.match(refused.text, /The engine of this model/);
      assert.equal(engine.seen.length, seen);
    });
  }

  test('gets a budget for reasoning if its model has no adaptive reasoning', async () => {
    const message = 'adaptive thinking is not supported on this model';
    engine.script.push(
      { status: 400, error: { type: 'invalid_request_error', message } },
      { content: THOUGHT },
    );
    const messages = [{ role: 'user', content: 'Hello' }];
    const more = { reasoning_effort: 'high', max_completion_tokens: 4_000, tools: [TOOL] };
    const received = await post('/chat/completions', { messages, ...more });
    assert.equal(received.status, 200, received.text);
    assert.equal(engine.seen[1]?.body['output_config'], undefined);
    assert.deepEqual(engine.seen[1]?.body.thinking, { type: 'enabled', budget_tokens: 3_999 });
  });

  for (const stream of [false, true]) {
    const name = stream ? ' as a stream' : '';

    test(`receives reasoning that a Responses caller sends back${name}`, async () => {
      engine.script.push({ content: THOUGHT });
      const tools = [{ type: 'function', name: 'add', parameters: { type: 'object' } }];
      const more = { stream, tools, store: false, include: ['reasoning.encrypted_content'] };
      const input: object[] = [{ role: 'user', content: 'Hello' }];
      const reasoning = { effort: 'high' };
      const first = await post('/responses', { input, reasoning, ...more });
      assert.equal(first.status, 200, first.text);
      const { output } = stream ? chunksOf(first).at(-1).response : first.body;
      const types = output.map(({ type }: { type: string }) => type);
      assert.deepEqual(types, [
        'reasoning',
        'reasoning',
        'message',
        'function_call',
        'function_call',
      ]);
      assert.equal(output[0].summary[0].text, 'First "this"\nthen é😀');

      engine.script.push({ content: [{ type: 'text', text: 'Two' }] });
      const results = ['toolu_1', 'toolu_2'].map((call_id) => ({
        type: 'function_call_output',
        call_id,
        output: '3',
      }));
      input.push(...output, ...results);
      const second = await post('/responses', { input, reasoning, ...more });
      assert.equal(second.status, 200, second.text);
      assert.deepEqual(engine.seen[1]?.body.messages[1]?.content, SIGNED);
    });

    test(`receives reasoning of the stored response of a Responses caller${name}`, async () => {
      engine.script.push({ content: THOUGHT });
      const tools = [{ type: 'function', name: 'add', parameters: { type: 'object' } }];
      const first = await post('/responses', { input: 'Hello', stream, tools });
      const { id } = stream ? chunksOf(first).at(-1).response : first.body;
      engine.script.push({ content: [{ type: 'text', text: 'Two' }] });
      const input = ['toolu_1', 'toolu_2'].map((call_id) => ({
        type: 'function_call_output',
        call_id,
        output: '3',
      }));
      const second = await post('/responses', { previous_response_id: id, input, tools });
      assert.equal(second.status, 200, second.text);
      assert.deepEqual(engine.seen[1]?.body.messages[1]?.content, SIGNED);
    });
  }

  test('has the marks for a prompt cache at the place of messages, calls and tools', async () => {
    engine.script.push({ content: [{ type: 'text', text: 'Two' }] });
    const mark = { cache_control: { type: 'ephemeral' } };
    const call = { id: 'toolu_1', type: 'function', function: { name: 'add', arguments: '{}' } };
    const messages = [
      { role: 'system', content: 'Be brief', ...mark },
      { role: 'user', content: 'Add' },
      { role: 'assistant', content: '', tool_calls: [{ ...call, ...mark }] },
      { role: 'tool', tool_call_id: 'toolu_1', content: '2', ...mark },
    ];
    const tools = [{ ...TOOL, ...mark }];
    const { status, text } = await post('/chat/completions', { messages, tools });
    assert.equal(status, 200, text);
    const { system, messages: sent, tools: offered } = engine.seen[0]?.body ?? {};
    assert.deepEqual(system, [{ type: 'text', text: 'Be brief', ...mark }]);
    const use = { type: 'tool_use', id: 'toolu_1', name: 'add', input: {}, ...mark };
    assert.deepEqual(sent?.[1]?.content, [use]);
    const plain = [{ type: 'text', text: '2' }];
    const result = { type: 'tool_result', tool_use_id: 'toolu_1', content: plain, ...mark };
    assert.deepEqual(sent?.[2]?.content, [result]);
    assert.deepEqual(offered?.[0]?.['cache_control'], mark.cache_control);
  });

  test('has a mark for the whole prompt if the engine caches prompts and the caller has no marks', async () => {
    const mark = { cache_control: { type: 'ephemeral' } };
    const user = { role: 'user', content: 'Hello' };
    const requests: readonly (readonly [path: string, body: object, sent: object | undefined])[] = [
      ['/chat/completions', { messages: [user] }, mark.cache_control],
      ['/responses', { input: 'Hello' }, mark.cache_control],
      ['/chat/completions', { messages: [{ ...user, ...mark }] }, undefined],
      ['/chat/completions', { messages: [user], tools: [{ ...TOOL, ...mark }] }, undefined],
      ['/messages', { messages: [user], max_tokens: 100 }, undefined],
    ];
    for (const [path, body, sent] of requests) {
      engine.seen.length = 0;
      engine.script.push({ content: [{ type: 'text', text: 'Yes' }] });
      const { status, text } = await post(path, { model: 'cached', ...body });
      assert.equal(status, 200, text);
      assert.deepEqual(engine.seen[0]?.body['cache_control'], sent, JSON.stringify(body));
    }
    engine.script.push({ content: [{ type: 'text', text: 'Yes' }] });
    await post('/chat/completions', { messages: [user] });
    assert.equal(engine.seen[1]?.body['cache_control'], undefined, 'not without the setting');
  });

  test('passes a mark for the whole prompt on', async () => {
    engine.script.push({ content: [{ type: 'text', text: 'Yes' }] });
    const mark = { cache_control: { type: 'ephemeral', ttl: '1h' } };
    const messages = [{ role: 'user', content: 'Hello' }];
    await post('/chat/completions', { messages, ...mark });
    assert.deepEqual(engine.seen[0]?.body['cache_control'], mark.cache_control);
  });
});

/** The events that the engine sent, with the name of the caller's model. */
function expected(sent: string): string {
  return sent.replace('"model":"claude-opus"', '"model":"opus"');
}

/** The bytes that the caller received, without the added cost. */
function withoutCost({ text }: Called): string {
  return text.replace(/,"cost":\{[^}]*\},"svc_parameters":\{.*?"web_search_citations":\[\]\}/, '');
}

const EMPTY = {
  id: 'm',
  type: 'message',
  role: 'assistant',
  model: 'claude-opus',
  content: [],
  stop_reason: null,
  stop_sequence: null,
};

describe('a Messages caller of an engine of the same protocol', () => {
  const BODY = {
    max_tokens: 3_000,
    system: [
      { type: 'text', text: 'Be "brief" é', cache_control: { type: 'ephemeral', ttl: '1h' } },
    ],
    messages: [
      {
        role: 'user',
        content: [{ type: 'text', text: 'Hello', cache_control: { type: 'ephemeral' } }],
      },
    ],
    tools: [
      { name: 'add', input_schema: { type: 'object' }, cache_control: { type: 'ephemeral' } },
      { type: 'bash_20250124', name: 'bash' },
    ],
    thinking: { type: 'enabled', budget_tokens: 2_000 },
    context_management: { edits: [] },
    metadata: { user_id: 'anna' },
  };

  for (const stream of [false, true]) {
    const name = stream ? ' as a stream' : '';

    test(`sends and receives the bytes as they come${name}`, async () => {
      engine.script.push({ content: THOUGHT });
      const text = JSON.stringify({ model: 'opus', ...BODY, stream });
      const headers = { 'anthropic-beta': 'context-management-2025-06-27, oauth-2025-04-20' };
      const { secret } = farebox.owner;
      const received = await call(farebox, '/messages', { secret, body: text, headers });
      assert.equal(received.status, 200, received.text);
      const [seen] = engine.seen;
      assert.ok(seen !== undefined);
      assert.equal(seen.text, text.replace('"opus"', '"claude-opus"'));
      assert.equal(seen.headers['anthropic-beta'], 'context-management-2025-06-27');
      assert.equal(withoutCost(received), expected(seen.sent));
      assert.match(received.text, /"cost":\{"usd":[\d.e-]+,"diem":0\},"svc_parameters":/);
    });
  }

  test('forwards no beta that costs more than the model', async () => {
    const betas = [
      'compact-2026-01-12',
      'context-1m-2025-08-07',
      'fallback-credit-2026-07-01',
      'inline-tools-2026-09-15',
      'interleaved-thinking-2025-05-14',
      'server-side-fallback-2026-07-01',
    ];
    const beta = async (model: string) => {
      engine.script.push({ content: THOUGHT });
      const headers = { 'anthropic-beta': betas.join(',') };
      const { secret } = farebox.owner;
      await call(farebox, '/messages', { secret, body: { ...BODY, model }, headers });
      return engine.seen.at(-1)?.headers['anthropic-beta'];
    };
    assert.equal(await beta('opus'), 'interleaved-thinking-2025-05-14');
    assert.equal(
      await beta('million'),
      'context-1m-2025-08-07,interleaved-thinking-2025-05-14',
      'its context is sold',
    );
  });

  test('is billed by the counts of the engine', async () => {
    for (const stream of [false, true]) {
      engine.script.push({ content: THOUGHT, outputTokens: 200 });
      const received = await post('/messages', { ...BODY, stream });
      const cost = stream ? chunksOf(received).at(-2).cost : received.body.cost;
      const usage = engine.seen.at(-1)?.usage;
      assert.ok(usage !== undefined);
      assert.equal(Math.round(cost.usd * 1e9), nanoOf(usage));
    }
  });

  test('keeps the input of a call that an engine sends with the start of its block', async () => {
    const usage = { input_tokens: 30, output_tokens: 9 };
    const input = { city: 'Zürich "x"', days: [1, 2] };
    const use = { type: 'tool_use', id: 'toolu_1', name: 'add', input };
    const events = [
      { type: 'message_start', message: { id: 'm', type: 'message', model: 'claude-opus', usage } },
      { type: 'content_block_start', index: 0, content_block: use },
      { type: 'content_block_stop', index: 0 },
      { type: 'message_delta', delta: { stop_reason: 'tool_use' }, usage },
      { type: 'message_stop' },
    ];
    engine.script.push({ content: [], events });
    const messages = [{ role: 'user', content: 'Hi' }];
    const received = await post('/chat/completions', { messages, tools: [TOOL], stream: true });
    const [call_] = folded(received).message.tool_calls;
    assert.deepEqual(JSON.parse(call_.function.arguments), input);
  });

  test('is billed by its text if the engine reports usage before the text only', async () => {
    const text = 'word '.repeat(400);
    const cached = { cache_read_input_tokens: 0, cache_creation_input_tokens: 0 };
    const usage = { input_tokens: 30, ...cached, output_tokens: 1 };
    const events = [
      { type: 'message_start', message: { ...EMPTY, usage } },
      { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
      { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } },
      { type: 'content_block_stop', index: 0 },
      { type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null } },
      { type: 'message_stop' },
    ];
    engine.script.push({ content: [], events }, { content: [], events });
    const chat = { messages: [{ role: 'user', content: 'Hi' }], stream: true };
    const received = await post('/chat/completions', chat);
    const output = 1 + text.length / 4;
    const billed = 1_000 * (30 * PRICE.input + output * PRICE.output);
    assert.equal(Math.round(chunksOf(received).at(-1).cost.usd * 1e9), billed);
    // SDKs need the usage of the last delta.
    const passed = chunksOf(await post('/messages', { ...chat, max_tokens: 1_000 }));
    assert.deepEqual(passed.at(-2).usage, { ...usage, output_tokens: output });
  });

  test('is billed by the input of a call that an engine sends with the start of its block', async () => {
    const cached = { cache_read_input_tokens: 0, cache_creation_input_tokens: 0 };
    const usage = { input_tokens: 30, ...cached, output_tokens: 1 };
    const use = { type: 'tool_use', id: 'toolu_1', name: 'add', input: { text: 'x'.repeat(400) } };
    const events = [
      { type: 'message_start', message: { ...EMPTY, usage } },
      { type: 'content_block_start', index: 0, content_block: use },
      { type: 'content_block_stop', index: 0 },
      { type: 'message_delta', delta: { stop_reason: 'tool_use', stop_sequence: null } },
      { type: 'message_stop' },
    ];
    engine.script.push({ content: [], events });
    const passed = chunksOf(await post('/messages', { ...BODY, max_tokens: 1_000, stream: true }));
    const bytes = use.name.length + JSON.stringify(use.input).length;
    assert.equal(passed.at(-2).usage.output_tokens, 1 + Math.ceil(bytes / 4));
  });

  test('receives the whole message if the last event of the engine is cut', async () => {
    engine.script.push({ content: [{ type: 'text', text: 'Hello' }], cutBytes: 12 });
    const messages = [{ role: 'user', content: 'Hi' }];
    const events = chunksOf(await post('/messages', { messages, max_tokens: 100, stream: true }));
    assert.deepEqual(
      events.slice(-2).map(({ type }: { type: string }) => type),
      ['message_delta', 'message_stop'],
    );
  });

  test('is billed for the output so far after leaving a stream', async () => {
    engine.pauseMs = 20;
    const text = 'word '.repeat(2_000);
    engine.script.push({ content: [{ type: 'text', text }] });
    const before = await balance();
    const controller = new AbortController();
    const response = await fetch(`${farebox.url}/messages`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${farebox.owner.secret}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify({ model: 'opus', ...BODY, stream: true }),
      signal: controller.signal,
    });
    const reader = response.body?.getReader();
    for (let read = 0; read < 10; read += 1) await reader?.read();
    controller.abort();
    engine.pauseMs = 0;
    await until(async () => (await balance()) < before);
  });

  test('runs tools of this server only, and no service with a price of its own', async () => {
    engine.script.push({ content: [{ type: 'text', text: 'Yes' }] });
    const tools = [
      { type: 'code_execution_20250825', name: 'code_execution' },
      { type: 'web_fetch_20250910', name: 'web_fetch' },
      ...BODY.tools,
    ];
    const extra = { mcp_servers: [], speed: 'fast', container: 'c', fallbacks: [{ model: 'm' }] };
    const received = await post('/messages', { ...BODY, tools, ...extra });
    assert.equal(received.status, 200, received.text);
    assert.deepEqual(engine.seen[0]?.body.tools, BODY.tools);
    for (const name of Object.keys(extra)) assert.ok(!(name in (engine.seen[0]?.body ?? {})));
  });

  test('has its search run by this server, with reasoning and marks kept', async () => {
    const search = { type: 'web_search_20250305', name: 'web_search' };
    for (const stream of [false, true]) {
      engine.seen.length = 0;
      engine.script.push(
        {
          content: [
            { type: 'thinking', thinking: 'I search' },
            { type: 'tool_use', id: 'toolu_9', name: 'web_search', input: { query: 'tides' } },
          ],
        },
        {
          content: [
            { type: 'thinking', thinking: 'I know' },
            { type: 'text', text: 'The moon' },
          ],
        },
      );
      const tools = [search, ...BODY.tools];
      const received = await post('/messages', { ...BODY, tools, stream });
      assert.equal(received.status, 200, received.text);
      const content = stream
        ? blocksOf(received)
        : (received.body.content as Record<string, unknown>[]);
      const kinds = content.map(({ type }) => type);
      assert.deepEqual(kinds, [
        'thinking',
        'server_tool_use',
        'web_search_tool_result',
        'thinking',
        'text',
      ]);
      assert.equal(content[0]?.['signature'], signatureOf('I search'));
      assert.equal(content[3]?.['signature'], signatureOf('I know'));
      const [, second] = engine.seen;
      assert.deepEqual(second?.body.system, BODY.system);
      assert.deepEqual(second?.body.messages[0], BODY.messages[0]);
      assert.deepEqual(second?.body.messages[1]?.content, [
        { type: 'thinking', thinking: 'I search', signature: signatureOf('I search') },
        { type: 'tool_use', id: 'toolu_9', name: 'web_search', input: { query: 'tides' } },
      ]);
      assert.match(JSON.stringify(second?.body.messages[2]), /The moon pulls the sea/);
      assert.deepEqual(second?.body.thinking, BODY.thinking);
      assert.deepEqual(second?.body.tools?.[0], BODY.tools[0]);
    }
  });

  test('continues on another engine, and back, with reasoning of each', async () => {
    const messages: object[] = [...BODY.messages];
    const say = async (): Promise<Block[]> => {
      const received = await post('/messages', { ...BODY, model: 'both', messages });
      assert.equal(received.status, 200, received.text);
      const { content } = received.body;
      const results = (content as Block[]).flatMap(({ type, id }) =>
        type === 'tool_use' ? [{ type: 'tool_result', tool_use_id: id, content: '3' }] : [],
      );
      messages.push({ role: 'assistant', content }, { role: 'user', content: results });
      return content;
    };
    engine.script.push({ content: THOUGHT });
    await say();
    engine.script.push({ status: 500, error: { type: 'api_error', message: 'Internal' } });
    upstream.script.push({
      kind: 'answer',
      reasoning: 'Mine',
      toolCalls: [{ name: 'add', arguments: '{}' }],
    });
    const other = await say();
    assert.match(String(other[0]?.['signature']), /^fbx1\./);
    engine.script.push({ content: [{ type: 'text', text: 'Two' }] });
    await say();
    const last = engine.seen.at(-1)?.body;
    assert.deepEqual(last?.messages[1]?.content, SIGNED);
    assert.equal(last?.thinking, undefined, 'the last call has no reasoning of this engine');
  });

  test('repeats a request without reasoning that the engine rejects', async () => {
    engine.script.push({ content: [{ type: 'text', text: 'Yes' }] });
    const foreign = { type: 'thinking', thinking: 'Hm', signature: 'of another provider' };
    const messages = [
      ...BODY.messages,
      { role: 'assistant', content: [foreign, { type: 'text', text: 'Hm' }] },
      { role: 'user', content: 'And?' },
    ];
    const received = await post('/messages', { ...BODY, messages });
    assert.equal(received.status, 200, received.text);
    assert.equal(engine.seen.length, 2);
    assert.ok(!engine.seen[1]?.text.includes('thinking'));
  });

  for (const [given, shown] of [
    ['overloaded_error', 'overloaded_error'],
    ['rate_limit_error', 'rate_limit_error'],
    ['invalid_request_error', 'invalid_request_error'],
    ['timeout_error', 'timeout_error'],
    ['api_error', 'api_error'],
    // The operator's key and balance are no matter of the caller.
    ['authentication_error', 'api_error'],
    ['billing_error', 'api_error'],
    ['permission_error', 'api_error'],
  ] as const) {
    test(`receives ${given} within a stream as ${shown}, without a charge`, async () => {
      const before = await balance();
      for (const thinking of [undefined, { type: 'enabled', budget_tokens: 1_024 }]) {
        const error = { type: given, message: 'Not now' };
        engine.script.push({ content: [], events: [{ type: 'error', error }] });
        // Translated, because this server adds a search.
        const more = thinking
          ? { tools: [{ type: 'web_search_20250305', name: 'web_search' }] }
          : {};
        const received = await post('/messages', { ...BODY, ...more, thinking, stream: true });
        const last = chunksOf(received).at(-1);
        assert.equal(last.type, 'error', received.text);
        assert.equal(last.error.type, shown, received.text);
        assert.equal(last.error.message.includes('Not now'), given === 'invalid_request_error');
      }
      assert.equal(await balance(), before);
    });
  }

  test('sends search results and citations of this server as text only', async () => {
    engine.script.push({ content: [{ type: 'text', text: 'Yes' }] });
    const found = [{ type: 'web_search_result', title: 'T', url: 'u', encrypted_content: '' }];
    const use = { type: 'server_tool_use', id: 'srvtoolu_1', name: 'web_search', input: {} };
    const result = { type: 'web_search_tool_result', tool_use_id: 'srvtoolu_1', content: found };
    const location = { type: 'web_search_result_location', url: 'u', encrypted_index: '' };
    const content = [use, result, { type: 'text', text: 'Tides', citations: [location] }];
    const messages = [
      ...BODY.messages,
      { role: 'assistant', content },
      { role: 'user', content: 'And?' },
    ];
    const received = await post('/messages', { ...BODY, messages });
    assert.equal(received.status, 200, received.text);
    assert.ok(!engine.seen[0]?.text.includes('encrypted_'));
    assert.ok(engine.seen[0]?.text.includes('Tides'));
  });

  for (const stream of [false, true]) {
    test(`citations of each kind reach callers of other protocols (stream: ${stream})`, async () => {
      const page = {
        type: 'page_location',
        cited_text: 'Ebb',
        document_index: 0,
        document_title: 'D',
      };
      const url = 'https://example.com/tides';
      const web = {
        type: 'web_search_result_location',
        url,
        title: 'Tides',
        cited_text: 'The moon',
      };
      const content = [
        { type: 'text', text: 'Ebb. ', citations: [page] },
        { type: 'text', text: 'Moon.', citations: [{ ...web, encrypted_index: 'x' }] },
      ];
      engine.script.push({ content }, { content });
      // Translated, because this server adds a search.
      const tools = [{ type: 'web_search_20250305', name: 'web_search' }];
      const { text } = await post('/messages', { ...BODY, thinking: undefined, tools, stream });
      assert.ok(text.includes(JSON.stringify(page)), text);
      assert.ok(text.includes(JSON.stringify({ ...web, encrypted_index: '' })), text);
      const responses = await post('/responses', { input: 'Why?', stream });
      const shown = { type: 'url_citation', url, title: 'Tides', start_index: 5, end_index: 10 };
      assert.ok(
        responses.text.includes(`"annotations":[${JSON.stringify(shown)}]`),
        responses.text,
      );
    });
  }

  test('receives a prompt that is too long within a stream in the form that it compacts by', async () => {
    const error = { type: 'invalid_request_error', message: 'prompt is too long: 9 > 8' };
    engine.script.push({ content: [], events: [{ type: 'error', error }] });
    const received = await post('/messages', { ...BODY, stream: true });
    assert.match(
      chunksOf(received).at(-1).error.message,
      /^prompt is too long: \d+ tokens > 200000/,
    );
  });

  test('receives a message that ends at its grant if the engine exceeds it', async () => {
    const text = 'word '.repeat(4_000);
    engine.script.push({ content: [{ type: 'text', text }] });
    const { max_tokens: _large, thinking: _on, ...rest } = BODY;
    const received = await post('/messages', { ...rest, max_tokens: 20, stream: true });
    const events = chunksOf(received);
    assert.equal(events.at(-1).type, 'message_stop');
    assert.equal(events.at(-2).delta.stop_reason, 'max_tokens');
    assert.equal(events.at(-3).type, 'content_block_stop');
    assert.ok(received.text.length < 20_000);
  });

  test('passes 220 generated turns through without a changed byte', async () => {
    const turns = fc.sample(TURN, { numRuns: 220, seed: 7 });
    for (const { content, stream, ...body } of turns) {
      engine.seen.length = 0;
      engine.script.push({ content });
      const text = JSON.stringify({ model: 'opus', stream, ...body });
      const { secret } = farebox.owner;
      const received = await call(farebox, '/messages', { secret, body: text });
      const [seen] = engine.seen;
      assert.equal(received.status, 200, received.text);
      assert.equal(seen?.text, text.replace('"opus"', '"claude-opus"'));
      assert.equal(withoutCost(received), expected(seen?.sent ?? ''));
    }
  });
});

const words = fc.string({ unit: 'binary', minLength: 1, maxLength: 60 }).map((text) => `a${text}`);
const mark = fc.constantFrom<object>(
  {},
  { cache_control: { type: 'ephemeral' } },
  { cache_control: { type: 'ephemeral', ttl: '1h' } },
);
const json = fc.dictionary(words, fc.jsonValue({ maxDepth: 2 }), { maxKeys: 3 });
const textBlock = words.map((text) => ({ type: 'text', text }));
const citedBlock = words.map((text) => ({
  type: 'text',
  text,
  citations: [{ type: 'char_location', cited_text: text, document_index: 0 }],
}));
const thinkingBlock = words.map((thinking) => ({ type: 'thinking', thinking }));
const redacted = words.map((data) => ({ type: 'redacted_thinking', data: `redacted-${data}` }));

/** A request and the content of its response. */
const TURN = fc.record({
  stream: fc.boolean(),
  max_tokens: fc.integer({ min: 2_000, max: 32_000 }),
  system: fc.tuple(words, mark).map(([text, more]) => [{ type: 'text', text, ...more }]),
  messages: fc.tuple(words, mark, json, words).map(([text, more, input, result]) => {
    const thinking = { type: 'thinking', thinking: text, signature: signatureOf(text) };
    const use = { type: 'tool_use', id: 'toolu_1', name: 'add', input };
    return [
      { role: 'user', content: text },
      { role: 'assistant', content: [thinking, use] },
      {
        role: 'user',
        content: [{ type: 'tool_result', tool_use_id: 'toolu_1', content: result, ...more }],
      },
    ];
  }),
  tools: fc
    .tuple(words, json)
    .map(([description, properties]) => [
      { name: 'add', description, input_schema: { type: 'object', properties } },
    ]),
  temperature: fc.double({ min: 0, max: 1, noNaN: true }),
  content: fc
    .tuple(
      fc.array(fc.oneof(thinkingBlock, redacted), { maxLength: 2 }),
      fc.array(fc.oneof(textBlock, citedBlock), { minLength: 1, maxLength: 3 }),
      fc.array(json, { maxLength: 2 }),
    )
    .map(([thoughts, texts, inputs]): Block[] => [
      ...thoughts,
      ...texts,
      ...inputs.map((input, at) => ({ type: 'tool_use', id: `toolu_${at}`, name: 'add', input })),
    ]),
});

/** Folds the events of a message into its blocks. */
function blocksOf(called: Called): Record<string, unknown>[] {
  const blocks: Record<string, unknown>[] = [];
  for (const { type, index, content_block, delta } of chunksOf(called)) {
    if (type === 'content_block_start') blocks[index] = { ...content_block };
    const block = blocks[index];
    if (type !== 'content_block_delta' || block === undefined) continue;
    const { type: kind, ...members } = delta;
    for (const [name, value] of Object.entries(members)) {
      const known = block[name];
      block[name] = typeof known === 'string' ? known + String(value) : value;
    }
    assert.match(kind, /_delta$/);
  }
  return blocks;
}

/** Prices are USD per million tokens. */
function nanoOf(usage: Usage): number {
  return Math.round(
    1_000 *
      (usage.input_tokens * PRICE.input +
        usage.cache_read_input_tokens * PRICE.cacheInput +
        usage.cache_creation_input_tokens * PRICE.cacheWrite +
        usage.output_tokens * PRICE.output),
  );
}
