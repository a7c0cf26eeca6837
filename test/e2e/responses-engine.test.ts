/** Engines of OpenAI's Responses API, called through each protocol of callers. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { type Called, call } from '../app/call.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import {
  type EngineResponse,
  eventBytes,
  engineEvents,
  functionCall,
  message,
  reasoning,
  responds,
} from '../support/responses-engine.ts';
import { behave, TestUpstream } from '../support/test-upstream.ts';

const PRICE = { input: 3, output: 15, cacheInput: 0.3 };
/** The cost of `ENGINE_USAGE` in nano-USD. */
const COST_NANO = 20n * 3_000n + 100n * 300n + 30n * 15_000n;

let engine: TestUpstream;
let farebox: TestApp;

before(async () => {
  engine = await TestUpstream.start();
  const model = (id: string, replicas: string) =>
    `  - { id: ${id}, type: text, context: 200000, maxCompletionTokens: 32000, capabilities: [functionCalling, reasoning, reasoningEffort, responseSchema, vision, logProbs], price: ${JSON.stringify(PRICE)}, replicas: [${replicas}] }`;
  farebox = await startTestApp({
    yaml: `
engines:
  hosted: { protocol: responses, url: "${engine.url}", apiKey: "sk-test" }
  other: { url: "${engine.url}", quirks: { promptCacheRetention: true } }
models:
${model('pro', '{ engine: hosted, model: engine-pro }')}
${model('translated', '{ engine: other, model: small }')}
${model('only', '{ engine: other, model: only-responses }')}
${model('only-stream', '{ engine: other, model: only-streamed-responses }')}
${model('mixed', '{ engine: hosted, model: engine-pro }, { engine: other, model: small, order: 2 }')}
`,
  });
});
after(async () => {
  try {
    await farebox.audit();
  } finally {
    await farebox.stop();
    await engine.kill();
  }
});
beforeEach(() => {
  engine.seen.length = 0;
  engine.script.length = 0;
});

function post(path: string, body: object): Promise<Called> {
  return call(farebox, path, { secret: farebox.owner.secret, body: { model: 'pro', ...body } });
}

async function balanceNano(): Promise<bigint> {
  return (await farebox.app.stores.ledger.balances(farebox.owner.accountId)).usdNano;
}

function sent(at = -1) {
  return JSON.parse(engine.seen.at(at)?.body ?? '');
}

function eventsOf({ text }: Called) {
  return [...text.matchAll(/^data: (\{.*\})$/gm)].map(([, json = '']) => JSON.parse(json));
}

const TOOL = {
  type: 'function',
  function: { name: 'add', description: 'Adds', parameters: { type: 'object', properties: {} } },
};
const THOUGHT: EngineResponse = {
  output: [
    reasoning('rs_1', ['First "this"', 'then é😀'], 'gAAA'),
    message('msg_1', 'Let me see.'),
    functionCall('1', 'add', { a: 1, text: 'q"\n' }),
    functionCall('2', 'add', {}),
  ],
};

/** The message of a chat completion, from JSON or from the chunks of a stream. */
function messageOf(called: Called, stream: boolean) {
  if (!stream) return called.body.choices[0].message;
  const read: Called['body'] = { content: '', reasoning_content: '', tool_calls: [] };
  for (const { choices } of eventsOf(called)) {
    const {
      content,
      reasoning_content,
      reasoning_details,
      tool_calls = [],
    } = choices[0]?.delta ?? {};
    read.content += content ?? '';
    read.reasoning_content += reasoning_content ?? '';
    if (reasoning_details) {
      read.reasoning_details = [...(read.reasoning_details ?? []), ...reasoning_details];
    }
    for (const { index, id, function: made } of tool_calls) {
      const made0 = { name: made.name, arguments: '' };
      read.tool_calls[index] ??= { id, type: 'function', function: made0 };
      read.tool_calls[index].function.arguments += made.arguments;
    }
  }
  return read;
}

describe('an engine of the Responses API', () => {
  for (const stream of [false, true]) {
    const way = stream ? 'streaming' : 'non-streaming';
    test(`completes a chat with reasoning and tools, which keeps its reasoning (${way})`, async () => {
      engine.script.push(responds(THOUGHT), responds({ output: [message('m', 'Three')] }));
      const messages: object[] = [
        { role: 'system', content: 'Be brief' },
        { role: 'user', content: 'Add' },
      ];
      const more = { stream, tools: [TOOL], reasoning_effort: 'high', max_tokens: 400 };
      const before = await balanceNano();
      const first = await post('/chat/completions', { messages, ...more });
      assert.equal(first.status, 200, first.text);
      assert.equal(before - (await balanceNano()), COST_NANO);
      const [seen] = engine.seen;
      assert.equal(seen?.path, '/v1/responses');
      assert.equal(seen?.headers.authorization, 'Bearer sk-test');
      assert.deepEqual(sent(), {
        model: 'engine-pro',
        stream,
        ...(stream ? { stream_options: { include_obfuscation: false } } : {}),
        max_output_tokens: 400,
        instructions: 'Be brief',
        input: [{ type: 'message', role: 'user', content: 'Add' }],
        tools: [{ type: 'function', ...TOOL.function, strict: false }],
        reasoning: { effort: 'high' },
        include: ['reasoning.encrypted_content'],
        store: false,
      });
      const read = messageOf(first, stream);
      assert.equal(read.content, 'Let me see.');
      assert.equal(read.reasoning_content, 'First "this"\n\nthen é😀');
      assert.deepEqual(
        read.tool_calls.map(({ id, function: made }: Called['body']) => [id, made.arguments]),
        [
          ['call_1', '{"a":1,"text":"q\\"\\n"}'],
          ['call_2', '{}'],
        ],
      );
      assert.match(first.text, /"finish_reason":"tool_calls"/);
      assert.match(first.text, /"cached_tokens":100/);
      const results = read.tool_calls.map(({ id }: Called['body']) => {
        return { role: 'tool', tool_call_id: id, content: '3' };
      });
      messages.push({ role: 'assistant', ...read }, ...results);
      const second = await post('/chat/completions', { messages, ...more });
      assert.equal(second.status, 200, second.text);
      const { input } = sent();
      assert.deepEqual(input[1], THOUGHT.output[0]);
      assert.deepEqual(
        input.map(({ type }: Called['body']) => type),
        [
          'message',
          'reasoning',
          'message',
          'function_call',
          'function_call',
          'function_call_output',
          'function_call_output',
        ],
      );
    });

    test(`serves callers of the Messages API (${way})`, async () => {
      engine.script.push(responds(THOUGHT));
      const body = { stream, max_tokens: 2_000, messages: [{ role: 'user', content: 'Add' }] };
      const answer = await post('/messages', {
        ...body,
        tools: [{ name: 'add', input_schema: {} }],
      });
      assert.equal(answer.status, 200, answer.text);
      assert.match(answer.text, /"type":"tool_use","id":"call_1"/);
      assert.match(answer.text, /"stop_reason":"tool_use"/);
    });

    test(`shows citations to callers of each protocol (${way})`, async () => {
      const source = { type: 'url_citation', url: 'https://example.com/tides', title: 'Tides' };
      const cited = [{ ...source, start_index: 4, end_index: 8 }];
      const output = [message('m', 'High tide'), message('n', 'The moon pulls', cited)];
      const messages = [{ role: 'user', content: 'Why?' }];
      engine.script.push(...Array.from({ length: 3 }, () => responds({ output })));
      const chat = await post('/chat/completions', { messages, stream });
      const { type, ...members } = source;
      const moved = { type, url_citation: { ...members, start_index: 13, end_index: 17 } };
      assert.ok(chat.text.includes(`"annotations":${JSON.stringify([moved])}`), chat.text);
      const claude = await post('/messages', { messages, stream, max_tokens: 50 });
      const citation = {
        type: 'web_search_result_location',
        ...members,
        cited_text: '',
        encrypted_index: '',
      };
      assert.ok(claude.text.includes(JSON.stringify(citation)), claude.text);
      // A translated response has one message.
      const more = { svc_parameters: { strip_thinking_response: true } };
      const { text } = await post('/responses', { input: 'Why?', stream, ...more });
      const shown = { ...source, start_index: 13, end_index: 17 };
      assert.ok(text.includes(`"annotations":[${JSON.stringify(shown)}]`), text);
    });

    test(`an output that reached its limit has the finish reason length (${way})`, async () => {
      const more = { incomplete_details: { reason: 'max_output_tokens' } };
      engine.script.push(responds({ output: [message('m', 'Hel')], status: 'incomplete', more }));
      const answer = await post('/chat/completions', {
        stream,
        messages: [{ role: 'user', content: 'Hi' }],
      });
      assert.match(answer.text, /"finish_reason":"length"/);
    });

    test(`a failed response costs nothing, unless its text was sent (${way})`, async () => {
      const error = { code: 'server_error', message: 'Down' };
      const before = await balanceNano();
      const body = { stream, messages: [{ role: 'user', content: 'Hi' }] };
      const failed = responds({ output: [], status: 'failed', more: { error } });
      engine.script.push(failed, failed, failed, failed, failed);
      const nothing = await post('/chat/completions', body);
      assert.equal(nothing.status, stream ? 200 : 500, nothing.text);
      assert.equal(await balanceNano(), before);
      engine.script.length = 0;
      if (!stream) return;
      assert.match(nothing.text, /"upstream_error"/);
      engine.script.push(
        responds({ output: [message('m', 'Hello')], status: 'failed', more: { error } }),
      );
      const some = await post('/chat/completions', body);
      assert.match(some.text, /"upstream_error"/);
      assert.ok((await balanceNano()) < before);
    });
  }

  for (const [given, shown] of [
    ['rate_limit_exceeded', 'rate_limit_exceeded'],
    ['server_is_overloaded', 'server_is_overloaded'],
    ['context_length_exceeded', 'context_length_exceeded'],
    ['invalid_prompt', 'invalid_prompt'],
    ['server_error', 'server_error'],
    // The operator's quota is no matter of the caller.
    ['insufficient_quota', 'server_error'],
  ] as const) {
    test(`a response that fails with ${given} fails with ${shown} at the caller`, async () => {
      // Translated, if reasoning is stripped.
      for (const more of [{}, { svc_parameters: { strip_thinking_response: true } }]) {
        const error = { code: given, message: 'Not now' };
        engine.script.push(responds({ output: [], status: 'failed', more: { error } }));
        const { text } = await post('/responses', { input: 'Hi', stream: true, ...more });
        assert.match(
          text,
          new RegExp(`event: response.failed\n[^\n]*"error":\\{"code":"${shown}"`),
        );
      }
    });
  }

  test('rejects members that the protocol lacks, before any work', async () => {
    const messages = [{ role: 'user', content: 'Hi' }];
    for (const member of [{ stop: ['END'] }, { seed: 7 }, { n: 2 }, { logit_bias: { 5: 1 } }]) {
      const answer = await post('/chat/completions', { messages, ...member });
      assert.equal(answer.status, 400, answer.text);
      assert.match(answer.text, new RegExp(Object.keys(member)[0] ?? ''));
    }
    assert.equal(engine.seen.length, 0);
  });

  test('leaves out a parameter that the model rejects, from then on', async () => {
    const body = { messages: [{ role: 'user', content: 'Hi' }], temperature: 0.5 };
    const error = {
      message: "Unsupported parameter: 'temperature' is not supported with this model.",
      type: 'invalid_request_error',
      param: 'temperature',
      code: null,
    };
    engine.script.push(
      { kind: 'status', status: 400, body: JSON.stringify({ error }) },
      responds({ output: [message('m', 'Hi')] }),
      responds({ output: [message('m', 'Hi')] }),
    );
    for (const count of [2, 3]) {
      const answer = await post('/chat/completions', body);
      assert.equal(answer.status, 200, answer.text);
      assert.equal(engine.seen.length, count);
      assert.equal(sent().temperature, undefined);
    }
  });

  test('sends the request without reasoning that the engine cannot decrypt', async () => {
    const [item] = THOUGHT.output;
    const details = [
      {
        type: 'reasoning.encrypted',
        data: item?.['encrypted_content'],
        format: 'openai-responses-v1',
      },
    ];
    const messages = [
      { role: 'user', content: 'Hi' },
      { role: 'assistant', content: 'Hello', reasoning_details: details },
      { role: 'user', content: 'More' },
    ];
    const error = {
      message: 'The encrypted content gAAA could not be verified.',
      code: 'invalid_encrypted_content',
    };
    engine.script.push(
      { kind: 'status', status: 400, body: JSON.stringify({ error }) },
      responds({ output: [message('m', 'Hi')] }),
    );
    const answer = await post('/chat/completions', { messages });
    assert.equal(answer.status, 200, answer.text);
    const [first, second] = [sent(0), sent(1)];
    assert.equal(first.input[1].encrypted_content, 'gAAA');
    assert.deepEqual(second.input, [first.input[0], ...first.input.slice(2)]);
  });

  for (const stream of [false, true]) {
    test(`a model that is only available by the Responses API is called by it, ${stream ? 'in a stream' : 'as a whole'}`, async () => {
      const message404 =
        'This model is only supported in v1/responses and not in v1/chat/completions.';
      const body = JSON.stringify({
        error: { message: message404, type: 'invalid_request_error' },
      });
      const headers = { 'content-type': 'application/json' };
      const completed = responds({ output: [message('m', 'Hello')] });
      engine.script.push({ kind: 'status', status: 404, headers, body }, completed, completed);
      const model = stream ? 'only-stream' : 'only';
      const messages = [{ role: 'user', content: 'Hi' }];
      const before = await balanceNano();
      for (const tries of [2, 3]) {
        const called = await post('/chat/completions', { model, stream, messages });
        assert.equal(called.status, 200, called.text);
        assert.equal(messageOf(called, stream).content, 'Hello');
        assert.equal(engine.seen.length, tries);
      }
      assert.deepEqual(
        engine.seen.map(({ path }) => path),
        ['/v1/chat/completions', '/v1/responses', '/v1/responses'],
      );
      assert.equal(before - (await balanceNano()), 2n * COST_NANO);
    });
  }

  test('a replica of chat completions takes over from one of responses, and the reverse', async () => {
    const messages = [{ role: 'user', content: 'Hi' }];
    const chat = { kind: 'answer', content: 'Small' } as const;
    const own = responds({ output: [message('m', 'Small')] });
    for (const failing of ['/v1/responses', '/v1/chat/completions']) {
      engine.otherwise = {
        kind: 'own',
        answer: (response, body) => {
          const path = engine.seen.at(-1)?.path;
          const works = path === '/v1/responses' ? own : chat;
          const down = { kind: 'status', status: 503 } as const;
          void behave(path === failing ? down : works, response, { model: 'm', body });
        },
      };
      for (const stream of [false, true]) {
        const answer = await post('/chat/completions', { model: 'mixed', messages, stream });
        assert.equal(answer.status, 200, answer.text);
        assert.match(answer.text, /Small|"Sma"/);
        assert.notEqual(engine.seen.at(-1)?.path, failing);
      }
    }
  });

  test('a stream that ends early is an error', async () => {
    const events = engineEvents({ output: [message('m', 'Hello')] }).slice(0, -1);
    engine.script.push({
      kind: 'own',
      answer: (response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.end(eventBytes(events));
      },
    });
    const answer = await post('/chat/completions', {
      stream: true,
      messages: [{ role: 'user', content: 'Hi' }],
    });
    assert.match(answer.text, /"content":"Hel"/);
    assert.match(answer.text, /"upstream_error"/);
  });
});

test('a long cache lifetime in Responses reaches an engine of chat completions', async () => {
  const { secret } = await farebox.account('5');
  for (const [given, expected] of [
    ['24h', '24h'],
    ['in_memory', undefined],
  ]) {
    const body = { model: 'translated', input: 'Hi', prompt_cache_retention: given };
    engine.script.push({ kind: 'json' });
    assert.equal((await call(farebox, '/responses', { secret, body })).status, 200);
    assert.equal(sent().prompt_cache_retention, expected);
  }
});
