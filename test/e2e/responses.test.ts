/**
 * `POST /responses` and its routes on the wire: translation in both directions, storage, charges
 * and errors. `responses-clients.test.ts` has the clients of the protocol.
 */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import type { Behaviour } from '../support/test-upstream.ts';
import { type Bench, type CallOptions, call, startWithEngine } from '../app/call.ts';
import { pngHead } from '../media/png-head.ts';
import { TestWeb } from '../web/test-web.ts';

const AGENT = `  - id: agent
    type: text
    context: 65536
    maxCompletionTokens: 8192
    capabilities: [functionCalling, reasoning, reasoningEffort, vision, multipleImages, responseSchema, logProbs]
    price: { input: 1, output: 2 }
    replicas: [{ engine: rack1, model: tiny }]`;

const FUNCTION = { type: 'function', name: 'read', parameters: { type: 'object', properties: {} } };

describe('responses', () => {
  let bench: Bench;
  let web: TestWeb;
  let secret: string;
  let accountId: string;

  before(async () => {
    web = await TestWeb.start();
    bench = await startWithEngine({
      model: AGENT,
      yaml: `search: { provider: searxng, url: "${web.url}" }\nfetch: { allow: ["127.0.0.0/8"] }`,
    });
    ({ secret, accountId } = await bench.farebox.account('5'));
  });
  after(async () => {
    await bench.farebox.audit();
    await bench.stop();
    await web.stop();
  });
  beforeEach(() => {
    bench.upstream.script.length = 0;
    bench.upstream.seen.length = 0;
  });

  const says = (content: string, extra: Partial<Extract<Behaviour, { kind: 'answer' }>> = {}) =>
    bench.upstream.script.push({ kind: 'answer', content, ...extra });
  const ask = (path: string, options: CallOptions = {}) =>
    call(bench.farebox, path, { secret, ...options });
  const respond = (extra: Readonly<Record<string, unknown>>, options: CallOptions = {}) =>
    ask('/responses', { body: { model: 'agent', input: 'Hi', ...extra }, ...options });
  /** The last request to the engine. */
  const asked = () => JSON.parse(bench.upstream.seen.at(-1)?.body ?? '{}');
  const balance = async () => (await bench.farebox.app.stores.ledger.balances(accountId)).usdNano;

  /** The events of a stream, checked to be one. */
  async function events(extra: Readonly<Record<string, unknown>>, options: CallOptions = {}) {
    const { text, status } = await respond({ ...extra, stream: true }, options);
    assert.equal(status, 200, text);
    const frames = text.split('\n\n').filter((frame) => frame.startsWith('event: '));
    return frames.map((frame, at) => {
      const [, name = '', data = ''] = /^event: (.*)\ndata: (.*)$/s.exec(frame) ?? [];
      const event = JSON.parse(data);
      assert.equal(event.type, name);
      assert.equal(event.sequence_number, at);
      return event;
    });
  }

  test('a history of items becomes messages for any chat template', async () => {
    says('Done');
    const answer = await respond({
      instructions: 'Rules',
      input: [
        { type: 'message', role: 'developer', content: [{ type: 'input_text', text: 'More' }] },
        { role: 'user', content: 'Read it' },
        { type: 'reasoning', summary: [], encrypted_content: 'foreign' },
        { type: 'function_call', call_id: 'c1', name: 'read', arguments: '{"a":1}' },
        { type: 'custom_tool_call', call_id: 'c2', name: 'patch', input: '*** Begin' },
        { type: 'function_call_output', call_id: 'c1', output: 'text' },
        {
          type: 'custom_tool_call_output',
          call_id: 'c2',
          output: [
            { type: 'input_text', text: 'ok' },
            { type: 'input_image', image_url: 'data:image/png;base64,iVBORw0KGgo=' },
          ],
        },
        { type: 'function_call_output', call_id: 'nobody', output: 'lost' },
        { type: 'web_search_call', id: 'ws_1', status: 'completed' },
        { role: 'system', content: 'Be quick' },
        { role: 'user', content: [{ type: 'unheard_of' }, { type: 'input_text', text: 'Go on' }] },
      ],
      tools: [FUNCTION, { type: 'custom', name: 'patch' }],
    });
    assert.equal(answer.status, 400, 'the picture is no picture');
    assert.match(answer.body.error.message, /image/);
    says('Done');
    const good = await respond({
      instructions: 'Rules',
      input: [
        { type: 'message', role: 'developer', content: [{ type: 'input_text', text: 'More' }] },
        { role: 'user', content: 'Read it' },
        { type: 'function_call', call_id: 'c1', name: 'read', arguments: '{"a":1}' },
        { type: 'custom_tool_call', call_id: 'c2', name: 'patch', input: '*** Begin' },
        { type: 'function_call_output', call_id: 'c1', output: 'text' },
        // Outputs of tools that this server does not have.
        { type: 'shell_call', call_id: 's1', action: { commands: ['ls'] } },
        { type: 'shell_call_output', call_id: 's1', output: [{ stdout: 'a', stderr: '' }] },
        { type: 'local_shell_call_output', id: 'l1', output: '{}' },
        { role: 'system', content: 'Be quick' },
        { role: 'user', content: 'Go on' },
      ],
      tools: [FUNCTION, { type: 'custom', name: 'patch' }],
      unheard_of: 1,
    });
    assert.equal(good.status, 200, good.text);
    const made = (id: string, name: string, text: string) => ({
      id,
      type: 'function',
      function: { name, arguments: text },
    });
    assert.deepEqual(asked().messages, [
      { role: 'system', content: 'Rules\n\nMore' },
      { role: 'user', content: 'Read it' },
      {
        role: 'assistant',
        content: null,
        tool_calls: [made('c1', 'read', '{"a":1}'), made('c2', 'patch', '{"input":"*** Begin"}')],
      },
      { role: 'tool', tool_call_id: 'c1', content: 'text' },
      { role: 'tool', tool_call_id: 'c2', content: '(no output)' },
      {
        role: 'user',
        content: '<system-reminder>\nBe quick\n</system-reminder>\n\nGo on',
      },
    ]);
  });

  test('settings reach the engine under their chat names, with reduced limits', async () => {
    says('{}');
    const format = { type: 'json_schema', name: 'thing', strict: true, schema: { type: 'object' } };
    const { body, status, text } = await respond({
      max_output_tokens: 128_000,
      temperature: 0.5,
      reasoning: { effort: 'ultra', summary: 'auto' },
      text: { format, verbosity: 'low' },
      prompt_cache_key: 'thread-1',
      metadata: { project: 'p' },
      include: ['unheard_of'],
      tools: [FUNCTION, { type: 'file_search', vector_store_ids: [] }],
      tool_choice: { type: 'function', name: 'read' },
      parallel_tool_calls: false,
    });
    assert.equal(status, 200, text);
    const given = asked();
    assert.equal(given.max_tokens, 8_192);
    assert.equal(given.temperature, 0.5);
    assert.equal(given.reasoning_effort, 'max');
    assert.equal(given.verbosity, 'low');
    // Scoped to the account.
    assert.match(given.prompt_cache_key, /^[\w-]{32}$/);
    assert.equal(given.response_format.json_schema.name, 'thing');
    assert.deepEqual(given.tool_choice, { type: 'function', function: { name: 'read' } });
    assert.equal(given.parallel_tool_calls, false);
    assert.equal(given.tools.length, 1);
    assert.equal(given.metadata, undefined);
    assert.equal(body.max_output_tokens, 128_000);
    assert.deepEqual(body.text, { format, verbosity: 'low' });
    assert.deepEqual(body.metadata, { project: 'p' });
    const usage = await ask(`/usage/${body.id.slice('resp_'.length)}`);
    assert.equal(usage.status, 200, usage.text);
    assert.match(usage.text, /"protocol":"responses"/);
    assert.match(usage.text, /"prompt_cache_key":"thread-1"/);
    assert.match(usage.text, /"project":"p"/);
    says('{}');
    const unset = await respond({ max_output_tokens: 0, text: { verbosity: 'auto' } });
    assert.equal(unset.status, 200, unset.text);
    assert.equal(asked().max_tokens, 8_192);
    assert.equal(asked().verbosity, undefined);
  });

  test('calls have the names of the declared tools', async () => {
    const lark = { type: 'grammar', syntax: 'lark', definition: 'start: "x"' };
    const tools = [
      { type: 'custom', name: 'apply_patch', description: 'Edits', format: lark },
      { type: 'namespace', name: 'mcp__files', tools: [{ ...FUNCTION, name: 'open' }] },
    ];
    const toolCalls = [
      { name: 'apply_patch', arguments: '{"input":"*** Begin\\n\\"x\\""}' },
      { name: 'mcp__files__open', arguments: '{"path":"a"}' },
      { name: 'apply_patch', arguments: '*** raw' },
    ];
    says('', { toolCalls });
    const whole = (await respond({ tools })).body;
    assert.equal(asked().tools.length, 2);
    assert.match(asked().tools[0].function.description, /Edits[^]*lark grammar[^]*start: "x"/);
    const shown = whole.output.map(({ id: _id, ...item }: Record<string, unknown>) => item);
    assert.deepEqual(shown, [
      {
        type: 'custom_tool_call',
        status: 'completed',
        call_id: 'call_0',
        name: 'apply_patch',
        input: '*** Begin\n"x"',
      },
      {
        type: 'function_call',
        status: 'completed',
        call_id: 'call_1',
        name: 'open',
        namespace: 'mcp__files',
        arguments: '{"path":"a"}',
      },
      {
        type: 'custom_tool_call',
        status: 'completed',
        call_id: 'call_2',
        name: 'apply_patch',
        input: '*** raw',
      },
    ]);
    says('', { toolCalls });
    const told = await events({ tools });
    const done = told.filter(({ type }) => type === 'response.output_item.done');
    assert.deepEqual(
      done.map(({ item: { id: _id, ...item } }) => item),
      shown,
    );
    const inputs = told.filter(({ type }) => type === 'response.custom_tool_call_input.done');
    assert.deepEqual(
      inputs.map(({ input }) => input),
      ['*** Begin\n"x"', '*** raw'],
    );
    // Results of tools go to the engine under the names of the engine, with ids that are already in
    // use.
    says('', { toolCalls: [{ name: 'mcp__files__open', arguments: '{}' }] });
    const outputs = whole.output.map(({ call_id }: { call_id: string }) => ({
      type: 'function_call_output',
      call_id,
      output: 'ok',
    }));
    const input = [{ role: 'user', content: 'Hi' }, ...whole.output, ...outputs];
    const next = (await respond({ tools, input })).body;
    const calls = asked().messages[1].tool_calls;
    assert.deepEqual(
      calls.map((made: { function: object }) => made.function),
      [
        { name: 'apply_patch', arguments: '{"input":"*** Begin\\n\\"x\\""}' },
        { name: 'mcp__files__open', arguments: '{"path":"a"}' },
        { name: 'apply_patch', arguments: '{"input":"*** raw"}' },
      ],
    );
    assert.match(next.output[0].call_id, /^call_[\da-f]{24}$/);
  });

  test('reasoning is encrypted for the account, and restored unchanged', async () => {
    const tools = [FUNCTION];
    const include = ['reasoning.encrypted_content'];
    says('', { reasoning: 'I "think" so', toolCalls: [{ name: 'read', arguments: '{}' }] });
    const first = (await respond({ tools, include, store: false })).body;
    const [reasoning, made] = first.output;
    assert.deepEqual(reasoning.summary, [{ type: 'summary_text', text: 'I "think" so' }]);
    assert.match(reasoning.encrypted_content, /^fbx1\./);
    const input = [
      { role: 'user', content: 'Hi' },
      { ...reasoning, summary: [] },
      made,
      { type: 'function_call_output', call_id: made.call_id, output: 'ok' },
    ];
    says('Done');
    await respond({ tools, input });
    assert.equal(asked().messages[1].reasoning_content, 'I "think" so');
    says('Done');
    const other = (await bench.farebox.account('1')).secret;
    assert.equal((await respond({ tools, input }, { secret: other })).status, 200);
    assert.equal(asked().messages[1].reasoning_content, undefined);
  });

  test('a response can be continued, read and deleted by its id, by its own account', async () => {
    says('First', { reasoning: 'hm' });
    const first = (await respond({ instructions: 'Once' })).body;
    assert.equal(first.store, true);
    says('Second');
    const second = (await respond({ input: 'And?', previous_response_id: first.id })).body;
    assert.deepEqual(asked().messages, [
      { role: 'user', content: 'Hi' },
      { role: 'assistant', content: 'First' },
      { role: 'user', content: 'And?' },
    ]);
    assert.equal(second.previous_response_id, first.id);
    assert.deepEqual((await ask(`/responses/${second.id}`)).body, second);
    assert.deepEqual((await ask(`/responses/${second.id}?stream=false`)).body, second);
    const streamed = await ask(`/responses/${second.id}?stream=true`);
    assert.deepEqual([streamed.status, streamed.body.error.param], [400, 'stream']);
    const items = (await ask(`/responses/${second.id}/input_items`)).body;
    assert.equal(items.data[0].content[0].text, 'And?');
    assert.equal(items.has_more, false);
    // Reasoning of the store is named by its id alone.
    const reference = { type: 'item_reference', id: first.output[0].id };
    const [, message] = first.output;
    says('Third');
    await respond({ input: [{ role: 'user', content: 'Hi' }, reference, message] });
    assert.equal(asked().messages[1].reasoning_content, 'hm');
    const other = (await bench.farebox.account('1')).secret;
    for (const [method, path] of [
      ['GET', `/responses/${first.id}`],
      ['DELETE', `/responses/${first.id}`],
      ['GET', `/responses/${first.id}/input_items`],
    ] as const) {
      const refused = await ask(path, { method, secret: other });
      assert.equal(refused.status, 404);
      assert.equal(refused.body.error.code, 'not_found');
    }
    const foreign = await respond({ previous_response_id: first.id }, { secret: other });
    assert.equal(foreign.status, 400);
    assert.equal(foreign.body.error.code, 'previous_response_not_found');
    assert.equal(foreign.body.error.param, 'previous_response_id');
    const removed = await ask(`/responses/${first.id}`, { method: 'DELETE' });
    assert.deepEqual(removed.body, { id: first.id, object: 'response', deleted: true });
    // A conversation with a hole is none.
    const broken = await respond({ input: 'And?', previous_response_id: second.id });
    assert.equal(broken.body.error.code, 'previous_response_not_found');
    says('Unkept');
    const unkept = (await respond({ store: false })).body;
    assert.equal(unkept.store, false);
    assert.equal((await ask(`/responses/${unkept.id}`)).status, 404);
  });

  test('a failed turn is neither charged nor stored', async () => {
    const before = await balance();
    bench.upstream.otherwise = { kind: 'status', status: 500 };
    const refused = await respond({});
    bench.upstream.otherwise = { kind: 'json', usage: true };
    assert.equal(refused.status, 503);
    assert.deepEqual(Object.keys(refused.body.error), ['message', 'type', 'param', 'code']);
    assert.equal(refused.body.error.code, 'server_is_overloaded');
    assert.equal(await balance(), before);
    const id = `resp_${refused.headers.get('x-request-id')}`;
    assert.equal((await ask(`/responses/${id}`)).status, 404);
  });

  test('the cost of a turn in the response equals the charge', async () => {
    const before = await balance();
    const prompt_tokens_details = { cached_tokens: 40, cache_write_tokens: 30 };
    const extraUsage = { prompt_tokens_details };
    says('Hello', { promptTokens: 200, completionTokens: 50, extraUsage });
    const told = await events({});
    const last = told.at(-1);
    assert.equal(last.type, 'response.completed');
    assert.equal(last.response.cost.usd, 0.0003);
    assert.equal(Number(before - (await balance())), 300_000);
    assert.deepEqual(last.response.usage, {
      input_tokens: 200,
      input_tokens_details: prompt_tokens_details,
      output_tokens: 50,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: 250,
    });
  });

  test('a reference to a stored item needs no type', async () => {
    says('First');
    const { output } = (await respond({})).body;
    for (const type of [{ type: 'item_reference' }, { type: null }, {}]) {
      says('Second');
      const reference = { ...type, id: output[0].id };
      const input = [{ role: 'user', content: 'Hi' }, reference, { role: 'user', content: 'And?' }];
      assert.equal((await respond({ input })).status, 200);
      assert.equal(asked().messages[1].content, 'First');
    }
  });

  test('log probabilities are requested by their number or by their name in `include`', async () => {
    const include = ['message.output_text.logprobs'];
    for (const [extra, expected] of [
      [{ include }, [true, undefined]],
      [{ include, top_logprobs: 2 }, [true, 2]],
      [{ top_logprobs: 2 }, [true, 2]],
      [{ include: [] }, [undefined, undefined]],
    ] as const) {
      says('Hi');
      assert.equal((await respond(extra)).status, 200);
      assert.deepEqual([asked().logprobs, asked().top_logprobs], expected);
    }
  });

  test('a retry with its key gets the same response and costs nothing', async () => {
    const headers = { 'idempotency-key': 'turn-1' };
    says('Once');
    const first = await respond({ stream: true }, { headers });
    const before = await balance();
    const again = await respond({ stream: true }, { headers });
    assert.equal(again.headers.get('idempotent-replayed'), 'true');
    assert.equal(again.text, first.text);
    assert.equal(await balance(), before);
    assert.equal(bench.upstream.seen.length, 1);
  });

  test('the web search tool of the protocol runs the search of the server', async () => {
    web.results = [
      { title: 'Bern', url: 'https://bern.example/', content: 'The capital' },
      { title: 'Rome', url: 'https://rome.example/', content: 'Another' },
    ];
    const tools = [{ type: 'web_search' }];
    const search = { name: 'web_search', arguments: '{"query":"capital"}' };
    const text = 'It is Bern[REF]0[/REF], not Rome[REF]1[/REF].';
    for (const stream of [true, false]) {
      says('', { toolCalls: [search] });
      says(text);
      const response = stream
        ? (await events({ tools })).at(-1).response
        : (await respond({ tools })).body;
      const [call, message] = response.output;
      assert.equal(call.type, 'web_search_call');
      assert.equal(call.action.query, 'capital');
      assert.equal(call.action.sources[0].url, 'https://bern.example/');
      const [part] = message.content;
      assert.equal(part.text, 'It is Bern[1], not Rome[2].');
      assert.deepEqual(part.annotations[0], {
        type: 'url_citation',
        url: 'https://bern.example/',
        title: 'Bern',
        start_index: 10,
        end_index: 13,
      });
      const { start_index, end_index } = part.annotations[1];
      assert.equal(part.text.slice(start_index, end_index), '[2]');
    }
    says(text);
    const told = await events({ tools, tool_choice: { type: 'web_search' }, input: 'Where?' });
    assert.equal(web.queries.at(-1), 'Where?');
    assert.deepEqual(
      told.slice(2, 7).map(({ type }) => type.slice('response.'.length)),
      [
        'output_item.added',
        'web_search_call.in_progress',
        'web_search_call.searching',
        'web_search_call.completed',
        'output_item.done',
      ],
    );
    says(text);
    await respond({ tools, tool_choice: 'required', input: 'Whither?' });
    assert.equal(web.queries.at(-1), 'Whither?');
    says('No search');
    const bounded = (await respond({ tools, max_tool_calls: 0 })).body;
    assert.equal(asked().tools, undefined);
    assert.equal(bounded.output.length, 1);
    says('No search');
    await respond({ tools: [{ type: 'web_search', external_web_access: false }] });
    assert.equal(asked().tools, undefined);
  });

  test('files and images are accepted', async () => {
    const pixel = pngHead(64, 64).toString('base64');
    says('Seen');
    const { status, text } = await respond({
      input: [
        {
          role: 'user',
          content: [
            { type: 'input_text', text: 'What is it?' },
            { type: 'input_image', image_url: `data:image/png;base64,${pixel}`, detail: 'low' },
            {
              type: 'input_file',
              filename: 'note.txt',
              file_data: Buffer.from('the note').toString('base64'),
            },
          ],
        },
      ],
    });
    assert.equal(status, 200, text);
    const [, message] = asked().messages;
    assert.equal(message.content[1].image_url.detail, 'low');
    assert.match(message.content[2].text, /the note/);
  });

  test('a truncated response is incomplete and stored', async () => {
    bench.upstream.script.push({
      kind: 'own',
      answer: (response) => {
        const head = { id: 'x', object: 'chat.completion', created: 1, model: 'tiny' };
        const message = { role: 'assistant', content: 'Half' };
        response.setHeader('content-type', 'application/json');
        const choices = [{ index: 0, message, finish_reason: 'length' }];
        response.end(JSON.stringify({ ...head, choices }));
      },
    });
    const { body } = await respond({});
    assert.equal(body.status, 'incomplete');
    assert.deepEqual(body.incomplete_details, { reason: 'max_output_tokens' });
    assert.equal(body.output[0].status, 'incomplete');
    assert.equal((await ask(`/responses/${body.id}`)).status, 200);
  });

  test('log probabilities are returned if they are requested', async () => {
    const top_logprobs = [{ token: 'Hi', logprob: -0.1, bytes: null }];
    const content = [{ token: 'Hi', logprob: -0.1, bytes: [72, 105], top_logprobs }];
    const choice = { index: 0, logprobs: { content }, finish_reason: null };
    const head = { id: 'x', created: 1, model: 'tiny' };
    const expected = [{ ...content[0], top_logprobs: [{ token: 'Hi', logprob: -0.1, bytes: [] }] }];
    const answer = (isStream: boolean): Behaviour => ({
      kind: 'own',
      answer: (response) => {
        const said = { role: 'assistant', content: 'Hi' };
        const choices = [{ ...choice, [isStream ? 'delta' : 'message']: said }];
        if (!isStream) return void response.end(JSON.stringify({ ...head, choices }));
        const object = 'chat.completion.chunk';
        const end = [{ index: 0, delta: {}, finish_reason: 'stop' }];
        response.write(`data: ${JSON.stringify({ ...head, object, choices })}\n\n`);
        response.end(`data: ${JSON.stringify({ ...head, object, choices: end })}\n\n`);
      },
    });
    bench.upstream.script.push(answer(false));
    const whole = (await respond({ top_logprobs: 1 })).body;
    assert.equal(asked().top_logprobs, 1);
    assert.deepEqual(whole.output[0].content[0].logprobs, expected);
    bench.upstream.script.push(answer(true));
    const told = await events({ top_logprobs: 1 });
    const delta = told.find(({ type }) => type === 'response.output_text.delta');
    assert.deepEqual(delta.logprobs, expected);
    assert.deepEqual(told.at(-1).response.output[0].content[0].logprobs, expected);
  });

  test('a failed engine ends the stream with `response.failed`', async () => {
    const before = await balance();
    bench.upstream.script.push({ kind: 'stream', chunks: 4, cutAfter: 3 });
    const told = await events({});
    const last = told.at(-1);
    assert.equal(last.type, 'response.failed');
    assert.equal(last.response.status, 'failed');
    assert.equal(last.response.error.code, 'server_error');
    // The sent output is charged and reported.
    assert.ok(last.response.cost.usd > 0);
    assert.equal(Number(before - (await balance())), Math.round(last.response.cost.usd * 1e9));
    assert.equal((await ask(`/responses/${last.response.id}`)).status, 404);
  });

  test('errors have the format of the protocol', async () => {
    const refuse = async (
      extra: Readonly<Record<string, unknown>>,
      expected: readonly [status: number, code: string, param: string],
    ) => {
      const { status, body } = await respond(extra);
      const { code, param, message, type } = body.error;
      assert.deepEqual([status, code, param], expected, JSON.stringify(body));
      assert.equal(typeof message + typeof type, 'stringstring');
    };
    await refuse({ model: 'nobody' }, [404, 'model_not_found', '']);
    await refuse({ temperature: 3 }, [400, 'invalid_request', 'temperature']);
    await refuse({ background: true }, [400, 'unsupported_parameter', 'background']);
    await refuse({ stop: ['END'] }, [400, 'unsupported_parameter', 'stop']);
    await refuse({ conversation: 'c' }, [400, 'unsupported_parameter', 'conversation']);
    await refuse({ input: [] }, [400, 'invalid_request', 'input']);
    await refuse({ tool_choice: { type: 'file_search' } }, [400, 'invalid_request', 'tool_choice']);
    await refuse({ tool_choice: 'what' }, [400, 'invalid_request', 'tool_choice']);
    await refuse({ input: 'x '.repeat(1_000_000) }, [400, 'context_length_exceeded', '']);
    await refuse({ input: [{ type: 'function_call_output', output: 'x' }] }, [
      400,
      'invalid_request',
      'input.0.call_id',
    ]);
    await refuse({ input: [{ role: 'user', content: [{ type: 'input_file', file_id: 'f' }] }] }, [
      400,
      'invalid_request',
      'input.0.content.0.file_id',
    ]);
    const unknown = await respond({}, { secret: 'nobody' });
    assert.equal(unknown.status, 401);
    assert.equal(unknown.body.error.code, 'invalid_api_key');
    const stranger = await call(bench.farebox, '/responses', { body: { model: 'agent' } });
    assert.equal(stranger.status, 402);
    assert.equal(stranger.body.error.code, 'insufficient_quota');
  });

  test('an empty balance gets 402, and for Codex 429 with its error code', async () => {
    const { id } = await bench.farebox.app.stores.identity.createAccount('poor', 'paid');
    const poor = await bench.farebox.key({ accountId: id });
    const refused = await respond({}, { secret: poor });
    assert.equal(refused.status, 402);
    assert.equal(refused.body.error.code, 'insufficient_quota');
    assert.equal(refused.headers.get('x-should-retry'), 'false');
    const codex = await respond({}, { secret: poor, headers: { originator: 'codex_cli_rs' } });
    assert.equal(codex.status, 429);
    assert.equal(codex.body.error.code, 'insufficient_quota');
  });

  test('tokens are counted without calling a model', async () => {
    const count = async (input: string) =>
      (await ask('/responses/input_tokens', { body: { model: 'agent', input } })).body;
    const short = await count('Hi');
    assert.equal(short.object, 'response.input_tokens');
    assert.ok(short.input_tokens > 0);
    assert.ok((await count('word '.repeat(100))).input_tokens > short.input_tokens + 50);
    assert.equal(bench.upstream.seen.length, 0);
  });
});
