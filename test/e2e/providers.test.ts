/** Replays what model providers send, as published: one file of data per provider. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Called, call, chatBody } from '../app/call.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { type Provider, PROVIDERS, type ToolCall } from '../support/providers.ts';
import { behave, type Behaviour, TestUpstream } from '../support/test-upstream.ts';

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

function sendsEvents(events: readonly string[]): Behaviour {
  return {
    kind: 'own',
    answer: (response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(events.map((event) => `${event}\n\n`).join(''));
    },
  };
}

function jsonOf(message: object, finish = 'stop', usage: object = USAGE): Behaviour {
  const choices = [{ index: 0, message, finish_reason: finish }];
  const body = JSON.stringify({ id: 'u', object: 'chat.completion', choices, usage });
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

interface Protocol {
  readonly name: string;
  readonly path: string;
  body(history: readonly object[]): object;
  output(body: Called['body']): readonly Called['body'][];
  streamed(answer: Called): readonly Called['body'][];
  /** The items that a client adds to the history: the output and the results of its calls. */
  next(output: readonly Called['body'][]): readonly object[];
}

const PROTOCOLS: readonly Protocol[] = [
  {
    name: 'chat completions',
    path: '/chat/completions',
    body: (messages) => ({ messages, tools: TOOLS }),
    output: ({ choices }) => [choices[0].message],
    streamed: (answer) => {
      const calls: Called['body'][] = [];
      for (const { choices } of eventsOf(answer)) {
        for (const { index, ...piece } of choices[0]?.delta.tool_calls ?? []) {
          calls[index] ??= piece;
        }
      }
      return [{ role: 'assistant', content: null, tool_calls: calls }];
    },
    next: (output) => [
      ...output,
      ...output.flatMap(({ tool_calls }) =>
        tool_calls.map(({ id }: { id: string }) => ({
          role: 'tool',
          tool_call_id: id,
          content: '3',
        })),
      ),
    ],
  },
  {
    name: 'Responses',
    path: '/responses',
    body: (input) => ({
      input,
      store: false,
      tools: TOOLS.map((tool) => ({ type: 'function', ...tool.function })),
    }),
    output: ({ output }) => output,
    streamed: (answer) => eventsOf(answer).at(-1).response.output,
    next: (output) => [
      ...output,
      ...output.flatMap(({ call_id }) =>
        call_id === undefined ? [] : [{ type: 'function_call_output', call_id, output: '3' }],
      ),
    ],
  },
  {
    name: 'Messages',
    path: '/messages',
    body: (messages) => ({
      messages,
      max_tokens: 2_000,
      tools: TOOLS.map(({ function: { name, parameters } }) => ({
        name,
        input_schema: parameters,
      })),
    }),
    output: ({ content }) => content,
    streamed: (answer) =>
      eventsOf(answer).flatMap(({ content_block }) => (content_block ? [content_block] : [])),
    next: (content) => [
      { role: 'assistant', content },
      {
        role: 'user',
        content: content.flatMap(({ type, id }) =>
          type === 'tool_use' ? [{ type: 'tool_result', tool_use_id: id, content: '3' }] : [],
        ),
      },
    ],
  },
];

/** An engine that calls a tool in every response, with these members. */
function toolLoop(members: object): Behaviour {
  return {
    kind: 'own',
    answer: (response, body) => {
      const made = { name: 'add', arguments: '{"a":1}' };
      const call = {
        index: 0,
        id: 'function-call-1',
        type: 'function',
        function: made,
        ...members,
      };
      const message = { role: 'assistant', content: null, tool_calls: [call] };
      const isStream = JSON.parse(body).stream === true;
      const behaviour = isStream ? streamOf([message]) : jsonOf(message);
      void behave(behaviour, response, { model: 'm', body });
    },
  };
}

const LIMITS = `limits: { plans: { staff: { text: { XS: &wide { requestsPerMinute: 100000, tokensPerMinute: 100000000 }, S: *wide, M: *wide, L: *wide } } } }`;

describe('providers', () => {
  let upstream: TestUpstream;
  let farebox: TestApp;
  let secret: string;

  before(async () => {
    upstream = await TestUpstream.start();
    const engine = (name: string, { dialect, url: path = '/v1', settings }: Provider) => {
      const url = `http://127.0.0.1:${upstream.port}${path}`;
      return `  ${name}: ${JSON.stringify({ url, dialect, ...settings })}`;
    };
    const model = (name: string, replicas: string) =>
      `  - { id: ${name}, type: text, context: 65536, capabilities: [functionCalling, reasoning, reasoningEffort, responseSchema], price: { input: 1, output: 2 }, replicas: [${replicas}] }`;
    farebox = await startTestApp({
      yaml: [
        'engines:',
        ...PROVIDERS.map(([name, data]) => engine(name, data)),
        'models:',
        ...PROVIDERS.map(([name]) => model(name, `{ engine: ${name}, model: tiny }`)),
        model('two', '{ engine: groq, model: a }, { engine: groq, model: b }'),
        LIMITS,
      ].join('\n'),
    });
    ({ secret } = farebox.owner);
  });
  after(async () => {
    await farebox.audit();
    await farebox.stop();
    await upstream.kill();
  });

  const post = (path: string, body: object) => call(farebox, path, { secret, body });

  test('a request above the rate limit of one replica is sent to the next', async () => {
    const groq = PROVIDERS.find(([name]) => name === 'groq')?.[1];
    const limit = groq?.errors?.find(({ meaning }) => meaning === 'rate-limit');
    const { status = 0, body } = limit ?? {};
    upstream.script.push({ kind: 'status', status, body: JSON.stringify(body) });
    upstream.otherwise = { kind: 'json' };
    const retried = await post('/chat/completions', { ...chatBody(), model: 'two' });
    assert.equal(retried.status, 200, retried.text);
    upstream.otherwise = { kind: 'status', status, body: JSON.stringify(body) };
    const limited = await post('/chat/completions', { ...chatBody(), model: 'two' });
    assert.equal(limited.status, 429, limited.text);
    assert.ok(Number(limited.headers.get('retry-after')) > 0);
  });

  test('an interrupted completion without text is retried, or an error in a stream', async () => {
    const nothing = { role: 'assistant', content: '' };
    const reason = 'insufficient_system_resource';
    upstream.script.push(jsonOf(nothing, reason));
    upstream.otherwise = { kind: 'json' };
    const retried = await post('/chat/completions', { ...chatBody(), model: 'two' });
    assert.equal(retried.body.choices[0].message.content, 'Hello ', retried.text);
    upstream.otherwise = streamOf([nothing], reason);
    const failed = await post('/chat/completions', { ...chatBody({ stream: true }), model: 'two' });
    assert.match(failed.text, /"code":"upstream_error"/);
    assert.doesNotMatch(failed.text, /"cost"/);
  });

  test('a prompt that an engine calls too long gets the error of a long prompt', async () => {
    const tgi = PROVIDERS.find(([name]) => name === 'tgi')?.[1];
    const { status = 0, body } = tgi?.errors?.[0] ?? {};
    upstream.otherwise = { kind: 'status', status, body: JSON.stringify(body) };
    const { text, body: answer } = await post('/chat/completions', { ...chatBody(), model: 'tgi' });
    assert.equal(answer.error?.code ?? answer.code, 'context_length_exceeded', text);
  });

  test('marks of `/messages` for a prompt cache reach engines that read them', async () => {
    const mark = { type: 'ephemeral', ttl: '1h' };
    const text = (words: string, more: object = {}) => ({ type: 'text', text: words, ...more });
    const marked = { cache_control: mark };
    const use = { type: 'tool_use', id: 'toolu_1', name: 'add', input: { a: 1 } };
    const result = { type: 'tool_result', tool_use_id: 'toolu_1', content: '3', ...marked };
    const body = {
      max_tokens: 2_000,
      system: [text('x-anthropic-billing-header: 1'), text('Rules', marked), text('Facts', marked)],
      tools: [{ name: 'add', input_schema: { type: 'object' } }],
      messages: [
        { role: 'user', content: [text('Reminder'), text('Add', marked)] },
        { role: 'assistant', content: [use] },
        { role: 'user', content: [result] },
      ],
    };
    upstream.otherwise = { kind: 'json' };
    const sent = async (model: string) => {
      const answer = await post('/messages', { model, ...body });
      assert.equal(answer.status, 200, answer.text);
      return JSON.parse(upstream.seen.at(-1)?.body ?? '').messages;
    };
    const made = { name: 'add', arguments: '{"a":1}' };
    const tool_calls = [{ id: 'toolu_1', type: 'function', function: made }];
    const call = { role: 'assistant', content: null, tool_calls };
    assert.deepEqual(await sent('openrouter'), [
      { role: 'system', content: [text('Rules', marked), text('Facts', marked)] },
      { role: 'user', content: [text('Reminder'), text('Add', marked)] },
      call,
      { role: 'tool', tool_call_id: 'toolu_1', content: [text('3', marked)] },
    ]);
    assert.deepEqual(await sent('vllm'), [
      { role: 'system', content: 'Rules\n\nFacts' },
      { role: 'user', content: 'Reminder\n\nAdd' },
      call,
      { role: 'tool', tool_call_id: 'toolu_1', content: '3' },
    ]);
  });

  for (const protocol of PROTOCOLS) {
    test(`a tool loop in ${protocol.name} may change the provider in each turn`, async () => {
      const strict = PROVIDERS.filter(([, { rejects }]) => rejects !== undefined);
      assert.ok(strict.length > 1);
      const gemini = PROVIDERS.find(([name]) => name === 'gemini')?.[1];
      let history: readonly object[] = [{ role: 'user', content: 'Add' }];
      for (const [provider, { rejects = '' }] of [...strict, ...PROVIDERS, ...strict]) {
        upstream.otherwise = toolLoop({ ...gemini?.callMembers, id: `call-${history.length}` });
        const body = { model: provider, ...protocol.body(history) };
        const answer = await post(protocol.path, body);
        assert.equal(answer.status, 200, answer.text);
        const { messages } = JSON.parse(upstream.seen.at(-1)?.body ?? '');
        if (rejects !== '') assert.doesNotMatch(JSON.stringify(messages), new RegExp(rejects));
        const made = messages.flatMap(({ tool_calls = [] }: { tool_calls?: { id: string }[] }) =>
          tool_calls.map(({ id }) => id),
        );
        const answered = messages.flatMap(
          (one: { tool_call_id?: string }) => one.tool_call_id ?? [],
        );
        assert.deepEqual(answered, made);
        assert.equal(new Set(made).size, made.length);
        history = [...history, ...protocol.next(protocol.output(answer.body))];
      }
    });
  }

  for (const [provider, data] of PROVIDERS) {
    const { streams = [], callMembers, requests = [], finishReasons = {}, paths = {} } = data;
    for (const { name, usage, billed } of data.usages ?? []) {
      test(`${provider}: ${name} is billed within the bound of its engine`, async () => {
        const body = { ...chatBody(), model: provider };
        upstream.otherwise = jsonOf({ role: 'assistant', content: 'Hi' }, 'stop', usage);
        const { text, body: answer } = await post('/chat/completions', body);
        assert.partialDeepStrictEqual(answer.usage, billed, text);
      });
    }
    for (const [path, enginePath] of Object.entries(paths)) {
      test(`${provider}: ${path} is sent to the URL of the engine`, async () => {
        upstream.otherwise = { kind: 'json' };
        const answer = await post(path, { ...chatBody(), model: provider });
        assert.equal(answer.status, 200, answer.text);
        assert.equal(upstream.seen.at(-1)?.path, enginePath);
      });
    }
    if (data.prefill !== undefined) {
      const way = data.prefill === null ? 'is rejected with the reason' : 'is continued';
      test(`${provider}: a last message of the assistant in /messages ${way}`, async () => {
        upstream.otherwise = { kind: 'json' };
        const messages = [
          { role: 'user', content: 'Hi' },
          { role: 'assistant', content: 'I' },
        ];
        const seen = upstream.seen.length;
        const answer = await post('/messages', { model: provider, max_tokens: 16, messages });
        if (data.prefill === null) {
          assert.equal(answer.status, 400, answer.text);
          assert.match(answer.text, /cannot continue a message of the assistant/);
          assert.equal(upstream.seen.length, seen);
          return;
        }
        assert.equal(answer.status, 200, answer.text);
        const sent = JSON.parse(upstream.seen.at(-1)?.body ?? '');
        assert.partialDeepStrictEqual(sent, data.prefill ?? {});
        assert.equal(sent.messages.at(-1).content, 'I');
      });
    }
    /** Only Messages has more than four stop texts. */
    const postRow = (body: { stop?: unknown }): Promise<Called> => {
      const { stop } = body;
      if (!Array.isArray(stop) || stop.length <= 4) {
        return post('/chat/completions', { ...chatBody(body), model: provider });
      }
      const messages = [{ role: 'user', content: 'Hi' }];
      return post('/messages', { model: provider, max_tokens: 16, messages, stop_sequences: stop });
    };
    for (const { name, body, sends, omits = [] } of requests) {
      test(`${provider}: ${name} reaches the engine in its spelling`, async () => {
        upstream.otherwise = { kind: 'json' };
        const answer = await postRow(body);
        assert.equal(answer.status, 200, answer.text);
        const sent = JSON.parse(upstream.seen.at(-1)?.body ?? '');
        for (const [member, value] of Object.entries(sends)) {
          assert.deepEqual(sent[member], value, member);
        }
        for (const member of omits) assert.equal(sent[member], undefined, member);
      });
    }
    for (const { name, body, message } of data.refused ?? []) {
      test(`${provider}: ${name} are rejected with the reason`, async () => {
        const seen = upstream.seen.length;
        const answer = await postRow(body);
        assert.equal(answer.status, 400, answer.text);
        assert.match(answer.text, new RegExp(message));
        assert.equal(upstream.seen.length, seen);
      });
    }
    for (const { name, chunks, content, reasoning, billed } of data.chunks ?? []) {
      test(`${provider}: a stream with ${name} is read and billed`, async () => {
        const lines = chunks.map((one) =>
          typeof one === 'string' ? one : `data: ${JSON.stringify(one)}`,
        );
        upstream.otherwise = sendsEvents([...lines, 'data: [DONE]']);
        const body = { ...chatBody({ stream: true }), model: provider };
        const answer = await post('/chat/completions', body);
        const events = eventsOf(answer);
        const joined = (member: string) =>
          events.map(({ choices }) => choices[0]?.delta[member] ?? '').join('');
        assert.equal(joined('content'), content, answer.text);
        assert.equal(joined('reasoning_content'), reasoning, answer.text);
        assert.partialDeepStrictEqual(events.at(-1).usage, billed, answer.text);
        assert.equal(answer.text.match(/"finish_reason":"stop"/g)?.length, 1, answer.text);
      });
    }
    for (const [at, { data: error, code }] of (data.streamErrors ?? []).entries()) {
      test(`${provider}: an error within a stream is one for the caller (form ${at + 1})`, async () => {
        const head = { id: 'x', object: 'chat.completion.chunk', created: 1, model: 'm' };
        const delta = { role: 'assistant', content: 'Hel' };
        const first = { ...head, choices: [{ index: 0, delta, finish_reason: null }] };
        upstream.otherwise = sendsEvents([
          `data: ${JSON.stringify(first)}`,
          `data: ${error}`,
          'data: [DONE]',
        ]);
        const body = { ...chatBody({ stream: true }), model: provider };
        const { text } = await post('/chat/completions', body);
        assert.match(text, /"content":"Hel"/);
        assert.match(text, new RegExp(`"code":"${code}"`), text);
      });
    }
    for (const [reason, shown] of Object.entries(finishReasons)) {
      test(`${provider}: the finish reason ${reason} becomes ${shown}`, async () => {
        const message = { role: 'assistant', content: 'Hi' };
        for (const stream of [false, true]) {
          upstream.otherwise = stream ? streamOf([message], reason) : jsonOf(message, reason);
          const body = { ...chatBody({ stream }), model: provider };
          const { text } = await post('/chat/completions', body);
          assert.match(text, new RegExp(`"finish_reason":"${shown}"`));
        }
      });
    }
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
    if (callMembers !== undefined) {
      test(`${provider}: a stored response keeps the signature of its tool call`, async () => {
        upstream.otherwise = toolLoop(callMembers);
        const first = await post('/responses', { model: provider, input: 'Add' });
        const { call_id } = first.body.output.at(-1);
        await post('/responses', {
          model: provider,
          previous_response_id: first.body.id,
          input: [{ type: 'function_call_output', call_id, output: '3' }],
        });
        const { messages } = JSON.parse(upstream.seen.at(-1)?.body ?? '');
        assert.partialDeepStrictEqual(messages[1].tool_calls[0], callMembers);
      });
      for (const protocol of PROTOCOLS) {
        for (const stream of [false, true]) {
          const way = `${protocol.name}, ${stream ? 'streaming' : 'non-streaming'}`;
          test(`${provider}: a tool call is repeated with its signature (${way})`, async () => {
            upstream.otherwise = toolLoop(callMembers);
            const ask = { role: 'user', content: 'Add' };
            let history: readonly object[] = [ask];
            for (const turns of [1, 2, 3]) {
              const body = { model: provider, stream, ...protocol.body(history) };
              const answer = await post(protocol.path, body);
              assert.equal(answer.status, 200, answer.text);
              const output = stream ? protocol.streamed(answer) : protocol.output(answer.body);
              history = [...history, ...protocol.next(output)];
              await post(protocol.path, { ...body, ...protocol.body(history) });
              const { messages } = JSON.parse(upstream.seen.at(-1)?.body ?? '');
              const made = messages.flatMap(
                (one: { tool_calls?: object[] }) => one.tool_calls ?? [],
              );
              assert.equal(made.length, turns);
              for (const one of made) assert.partialDeepStrictEqual(one, callMembers);
            }
          });
        }
      }
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
