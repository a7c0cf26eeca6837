/** Responses callers on engines of the Responses API: requests and responses are passed on. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { type Called, call } from '../app/call.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import {
  customCall,
  type EngineResponse,
  engineEvents,
  engineResponse,
  eventBytes,
  functionCall,
  message,
  reasoning,
  responds,
} from '../support/responses-engine.ts';
import { sharp } from '../support/sharp.ts';
import { type Behaviour, TestUpstream } from '../support/test-upstream.ts';

const PRICE = { input: 3, output: 15, cacheInput: 0.3 };
/** The cost of `ENGINE_USAGE` in nano-USD. */
const COST_NANO = 20n * 3_000n + 100n * 300n + 30n * 15_000n;
const LIMITS = `limits: { plans: { staff: { text: { XS: &wide { requestsPerMinute: 100000, tokensPerMinute: 100000000 }, S: *wide, M: *wide, L: *wide } } } }`;

let engine: TestUpstream;
let farebox: TestApp;

before(async () => {
  engine = await TestUpstream.start();
  const model = (id: string, replicas: string) =>
    `  - { id: ${id}, type: text, context: 200000, maxCompletionTokens: 32000, capabilities: [functionCalling, reasoning, reasoningEffort, responseSchema, vision, multipleImages], price: ${JSON.stringify(PRICE)}, replicas: [${replicas}] }`;
  farebox = await startTestApp({
    yaml: `
engines:
  hosted: { protocol: responses, url: "${engine.url}", apiKey: "sk-test" }
models:
${model('pro', '{ engine: hosted, model: engine-pro }')}
${LIMITS}
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

function post(body: object): Promise<Called> {
  const { secret } = farebox.owner;
  return call(farebox, '/responses', { secret, body: { model: 'pro', ...body } });
}

async function balanceNano(): Promise<bigint> {
  return (await farebox.app.stores.ledger.balances(farebox.owner.accountId)).usdNano;
}

function sent(at = -1) {
  return JSON.parse(engine.seen.at(at)?.body ?? '');
}

function eventsOf(text: string) {
  return [...text.matchAll(/^data: (\{.*\})$/gm)].map(([, json = '']) => JSON.parse(json));
}

function sends(bytes: string, type = 'text/event-stream'): Behaviour {
  return {
    kind: 'own',
    answer: (response) => {
      response.writeHead(200, { 'content-type': type });
      response.end(bytes);
    },
  };
}

const TURN: EngineResponse = {
  output: [
    reasoning('rs_1', ['First "this"', 'then é😀'], 'gAAA'),
    message('msg_1', 'Let me patch it.'),
    customCall('1', 'apply_patch', '*** Begin Patch\n*** Add File: a\n+x\n*** End Patch\n'),
    functionCall('2', 'exec', { cmd: 'ls', note: 'q"\n' }),
  ],
};
const USER = { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Do it' }] };
const TOOLS = [
  {
    type: 'custom',
    name: 'apply_patch',
    format: { type: 'grammar', syntax: 'lark', definition: 'start: x' },
  },
  { type: 'function', name: 'exec', parameters: { type: 'object', properties: {} }, strict: false },
  { type: 'namespace', name: 'mcp', tools: [{ type: 'function', name: 'read', parameters: {} }] },
];

/** The members of a response that are this server's, as bytes of an engine would have them. */
function asEngine(text: string): string {
  return text
    .replaceAll(/"id":"resp_[\da-f]{32}"/g, '"id":"resp_engine"')
    .replaceAll('"model":"pro"', '"model":"engine-model"')
    .replaceAll(/,"cost":\{[^}]*\},"svc_parameters":\{.*?"web_search_citations":\[\]\}/g, '');
}

describe('a Responses caller on an engine of the Responses API', () => {
  test('receives a last event after which the engine sends no blank line', async () => {
    const bytes = eventBytes(engineEvents(TURN)).trimEnd();
    for (const end of ['', '\n']) {
      engine.script.push(sends(bytes + end), sends(bytes + end));
      const passed = eventsOf((await post({ input: [USER], stream: true })).text);
      assert.equal(passed.at(-1).type, 'response.completed');
      const { secret } = farebox.owner;
      const chat = { model: 'pro', messages: [{ role: 'user', content: 'Do it' }], stream: true };
      const { text } = await call(farebox, '/chat/completions', { secret, body: chat });
      assert.match(text, /"finish_reason":"tool_calls"/);
      assert.doesNotMatch(text, /"error"/);
    }
  });

  for (const stream of [false, true]) {
    const way = stream ? 'streaming' : 'non-streaming';
    test(`sends its body and receives the bytes of the engine (${way})`, async () => {
      engine.script.push(responds(TURN));
      const body = {
        instructions: 'Be brief',
        input: [USER],
        tools: TOOLS,
        tool_choice: 'auto',
        parallel_tool_calls: true,
        reasoning: { effort: 'medium', summary: 'auto' },
        text: { verbosity: 'low' },
        include: ['reasoning.encrypted_content'],
        client_metadata: { session: 'x' },
        store: false,
        stream,
      };
      const before = await balanceNano();
      const answer = await post(body);
      assert.equal(answer.status, 200, answer.text);
      assert.equal(before - (await balanceNano()), COST_NANO);
      assert.equal(engine.seen.at(-1)?.path, '/v1/responses');
      assert.deepEqual(sent(), { ...body, model: 'engine-pro', max_output_tokens: 32_000 });
      const given = stream ? eventBytes(engineEvents(TURN)) : JSON.stringify(engineResponse(TURN));
      assert.equal(asEngine(answer.text), given);
      assert.match(answer.text, /"cost":\{"usd":0\.00054,"diem":0\}/);
    });

    test(`continues a stored response by its id (${way})`, async () => {
      engine.script.push(responds(TURN), responds({ output: [message('msg_2', 'Done')] }));
      const first = await post({ input: 'Do it', tools: TOOLS, stream });
      const response = stream ? eventsOf(first.text).at(-1).response : first.body;
      assert.equal(response.store, true, first.text);
      assert.match(response.id, /^resp_[\da-f]{32}$/);
      const digits = response.id.slice('resp_'.length);
      assert.deepEqual(
        response.output.map(({ id }: { id: string }) => id),
        [`rs_${digits}_0`, `msg_${digits}_1`, `ctc_${digits}_2`, `fc_${digits}_3`],
      );
      if (stream) {
        const events = eventsOf(first.text);
        for (const { item, output_index, item_id } of events) {
          const id = item?.id ?? item_id;
          if (id !== undefined) assert.equal(id, response.output[output_index].id);
        }
      }
      const output = [
        { type: 'custom_tool_call_output', call_id: 'call_1', output: 'ok' },
        { type: 'function_call_output', call_id: 'call_2', output: 'a' },
      ];
      const second = await post({ previous_response_id: response.id, input: output, stream });
      assert.equal(second.status, 200, second.text);
      const seen = sent();
      assert.equal(seen.previous_response_id, undefined);
      assert.equal(seen.store, false);
      const made = TURN.output.map(({ id: _engines, ...item }) => item);
      const asked = {
        type: 'message',
        role: 'user',
        content: [{ type: 'input_text', text: 'Do it' }],
      };
      assert.deepEqual(seen.input, [asked, ...made, ...output]);
      const last = stream ? eventsOf(second.text).at(-1).response : second.body;
      assert.equal(last.previous_response_id, response.id);
      const { secret } = farebox.owner;
      const stored = await call(farebox, `/responses/${response.id}`, { secret });
      assert.deepEqual(stored.body, response);
    });

    test(`refers to stored items by their ids (${way})`, async () => {
      engine.script.push(responds(TURN), responds({ output: [message('msg_2', 'Done')] }));
      const first = await post({ input: 'Do it', stream });
      const response = stream ? eventsOf(first.text).at(-1).response : first.body;
      const input = [
        { role: 'user', content: 'Do it' },
        ...response.output.map(({ id }: { id: string }) => ({ type: 'item_reference', id })),
        { type: 'function_call_output', call_id: 'call_2', output: 'a' },
      ];
      const second = await post({ input, stream });
      assert.equal(second.status, 200, second.text);
      const made = TURN.output.map(({ id: _engines, ...item }) => item);
      assert.deepEqual(sent().input, [input[0], ...made, input.at(-1)]);
    });

    test(`is cut at the grant, with closed items (${way})`, async () => {
      const text = 'x'.repeat(20_000);
      engine.script.push(responds({ output: [reasoning('rs_1', ['Hm']), message('msg_1', text)] }));
      const answer = await post({ input: 'Hi', max_output_tokens: 20, store: false, stream });
      assert.equal(answer.status, 200, answer.text);
      assert.equal(sent().max_output_tokens, 20);
      const events = eventsOf(answer.text);
      const response = stream ? events.at(-1).response : answer.body;
      assert.equal(response.status, 'incomplete');
      assert.deepEqual(response.incomplete_details, { reason: 'max_output_tokens' });
      const shown = response.output[1].content[0].text;
      assert.ok(shown.length > 20 && shown.length < 3_000, String(shown.length));
      assert.equal(response.output[1].status, 'incomplete');
      assert.equal(response.usage.output_tokens, 20);
      if (!stream) return;
      assert.equal(events.at(-1).type, 'response.incomplete');
      assert.deepEqual(events.at(-2).item, response.output[1]);
      const numbers = events.map(({ sequence_number }) => sequence_number);
      assert.deepEqual(numbers, [...numbers.keys()]);
    });

    test(`a usage that the engine does not report is that of the bill (${way})`, async () => {
      engine.script.push(responds({ output: [message('m', 'Hello')], usage: {} }));
      const answer = await post({ input: 'Hi', store: false, stream });
      const { usage } = stream ? eventsOf(answer.text).at(-1).response : answer.body;
      assert.ok(usage.input_tokens > 0 && usage.output_tokens > 0, answer.text);
    });
  }

  test('hosted tools, other members beyond the hold and the names of the service are left out', async () => {
    engine.script.push(responds({ output: [message('m', 'Hi')] }));
    const body = {
      input: 'Hi',
      tools: [{ type: 'code_interpreter', container: { type: 'auto' } }, ...TOOLS],
      service_tier: 'priority',
      metadata: { team: 'a' },
      user: 'u',
      prompt_cache_key: 'thread-1',
      svc_parameters: { include_venice_system_prompt: false },
    };
    const answer = await post(body);
    assert.equal(answer.status, 200, answer.text);
    const { prompt_cache_key, ...seen } = sent();
    assert.deepEqual(seen, {
      model: 'engine-pro',
      input: 'Hi',
      tools: TOOLS,
      include: ['reasoning.encrypted_content'],
      max_output_tokens: 32_000,
      store: false,
    });
    assert.match(prompt_cache_key, /^[\w-]{32}$/);
    assert.equal(answer.body.prompt_cache_key, 'thread-1');
    assert.deepEqual(answer.body.metadata, { team: 'a' });
  });

  test('verbosity `auto`, which the API of engines lacks, is left out', async () => {
    const format = { type: 'text' };
    for (const [verbosity, text] of [
      ['auto', { format }],
      ['low', { format, verbosity: 'low' }],
    ] as const) {
      engine.script.push(responds(TURN));
      const { status } = await post({ input: [USER], text: { format, verbosity } });
      assert.deepEqual([status, sent().text], [200, text]);
    }
  });

  test('hosted tools in the items of the input are left out', async () => {
    engine.script.push(responds({ output: [message('m', 'Hi')] }));
    const [own] = TOOLS;
    const hosted = [{ type: 'image_generation' }, { type: 'web_search' }];
    const items = (tools: readonly object[]) => [
      { type: 'additional_tools', role: 'developer', tools },
      { type: 'tool_search_call', call_id: 'c', execution: 'client', arguments: {} },
      { type: 'tool_search_output', call_id: 'c', execution: 'client', tools },
      USER,
    ];
    const answer = await post({ input: items([...hosted, own!]), store: false });
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual(sent().input, items([own!]));
  });

  test('images and files reach the engine as they are', async () => {
    engine.script.push(responds({ output: [message('m', 'Seen')] }));
    const square = { width: 64, height: 64, channels: 3, background: 'red' } as const;
    const png = await sharp({ create: square }).png().toBuffer();
    const content = [
      { type: 'input_text', text: 'See' },
      {
        type: 'input_image',
        image_url: `data:image/png;base64,${png.toString('base64')}`,
        detail: 'low',
      },
      { type: 'input_file', filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0=' },
    ];
    const input = [{ role: 'user', content }];
    const answer = await post({ input, store: false });
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual(sent().input, input);
  });

  test('reasoning that the engine cannot decrypt is left out after its rejection', async () => {
    const error = {
      message: 'The encrypted content gAAA could not be verified.',
      code: 'invalid_encrypted_content',
    };
    engine.script.push(
      { kind: 'status', status: 400, body: JSON.stringify({ error }) },
      responds({ output: [message('m', 'Hi')] }),
    );
    const sealed = reasoning('rs_9', [], 'fbx1.sealed');
    const input = [USER, sealed, ...TURN.output.slice(0, 2), USER];
    const answer = await post({ input, store: false });
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual(sent(0).input, [USER, ...TURN.output.slice(0, 2), USER]);
    assert.deepEqual(sent(1).input, [USER, TURN.output[1], USER]);
  });

  test('a response that fails costs nothing before its text, and the text after it', async () => {
    const error = { code: 'server_error', message: 'Down at 10.0.0.1' };
    const failed = (output: EngineResponse['output']) => ({
      output,
      status: 'failed',
      more: { error },
    });
    const before = await balanceNano();
    engine.script.push(responds(failed([])));
    const nothing = await post({ input: 'Hi', stream: true, store: false });
    const last = eventsOf(nothing.text).at(-1);
    assert.equal(last.type, 'response.failed');
    assert.equal(last.response.error.code, 'server_error');
    assert.doesNotMatch(nothing.text, /10\.0\.0\.1/);
    assert.equal(last.sequence_number, 2);
    assert.equal(await balanceNano(), before);
    engine.script.push(responds(failed([message('m', 'Hello')])));
    const some = await post({ input: 'Hi', stream: true, store: false });
    assert.equal(eventsOf(some.text).at(-1).type, 'response.failed');
    assert.ok((await balanceNano()) < before);
    const whole = responds(failed([]));
    engine.script.push(whole, whole, whole, whole, whole);
    const json = await post({ input: 'Hi', store: false });
    assert.equal(json.status, 503, json.text);
  });

  test('a stream that ends early fails', async () => {
    const events = engineEvents({ output: [message('m', 'Hello')] }).slice(0, -1);
    engine.script.push(sends(eventBytes(events)));
    const answer = await post({ input: 'Hi', stream: true, store: false });
    const last = eventsOf(answer.text).at(-1);
    assert.equal(last.type, 'response.failed');
    assert.equal(last.response.output.length, 1);
  });

  test('text that an engine sends only with the end of its item is charged and limited', async () => {
    const more = { usage: undefined };
    const all = engineEvents({ ...TURN, more });
    const isEnd = (type: unknown): boolean => String(type).endsWith('_item.done');
    const costs: bigint[] = [];
    for (const events of [
      all,
      all.filter(({ type }) => !String(type).endsWith('.delta')),
      all.filter(({ type, response }) => response !== undefined || isEnd(type)),
      all.filter(({ response }) => response !== undefined),
    ]) {
      engine.script.push(sends(eventBytes(events)));
      const before = await balanceNano();
      const answer = await post({ input: 'Hi', stream: true, store: false });
      assert.equal(eventsOf(answer.text).at(-1).type, 'response.completed');
      costs.push(before - (await balanceNano()));
    }
    assert.ok(costs[0]! > 20n * 15_000n);
    assert.deepEqual(
      costs,
      Array.from({ length: 4 }, () => costs[0]),
    );

    const long = engineEvents({ output: [message('m', 'x'.repeat(5_000))], more });
    for (const events of [
      long.filter(({ type }) => !String(type).endsWith('.delta')),
      long.filter(({ response }) => response !== undefined),
    ]) {
      engine.script.push(sends(eventBytes(events)));
      const limits = { stream: true, store: false, max_output_tokens: 16 };
      const shown = eventsOf((await post({ input: 'Hi', ...limits })).text);
      assert.equal(shown.at(-1).type, 'response.incomplete');
      assert.ok(shown.at(-1).response.usage.output_tokens <= 16);
    }
  });
});
