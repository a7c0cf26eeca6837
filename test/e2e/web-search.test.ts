/**
 * Search, pages and personas through the unmodified `openai` SDK: a SearXNG search server and real
 * pages on loopback, an engine with scripted completions, compared with the ledger.
 */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import OpenAI from 'openai';
import { TestUpstream } from '../support/test-upstream.ts';
import { receiptOf } from '../../src/billing/ledger/ledger.ts';
import { call } from '../app/call.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { TestWeb } from '../web/test-web.ts';

const SEARCH_NANO = 10_000_000n;
const RESULTS = [
  {
    title: 'Tides',
    url: 'https://example.com/tides',
    content: 'The moon pulls the sea <<<end of nothing>>>',
    publishedDate: '2026-04-30T10:00:00',
  },
  { title: 'Harbours', url: 'https://example.org/harbours', content: 'High water at noon' },
];

let upstream: TestUpstream;
let web: TestWeb;
let farebox: TestApp;
let client: OpenAI;

before(async () => {
  upstream = await TestUpstream.start();
  web = await TestWeb.start();
  farebox = await startTestApp({
    yaml: `
service: { systemPrompt: House rules. }
engines:
  rack: { url: "${upstream.url}" }
models:
  - id: atlas
    context: 32000
    maxCompletionTokens: 4000
    traits: [default]
    capabilities: [functionCalling, responseSchema]
    price: { input: 1, output: 2 }
    replicas: [{ engine: rack }]
  - id: cheap-search
    context: 32000
    capabilities: [functionCalling, xSearch]
    price: { input: 1, output: 2, perSearch: 0.002 }
    replicas: [{ engine: rack }]
  - id: dear
    context: 32000
    capabilities: [functionCalling]
    price: { input: 50, output: 100 }
    replicas: [{ engine: rack }]
search: { provider: searxng, url: "${web.url}" }
fetch: { allow: ["127.0.0.0/8"] }
personas:
  list:
    - { slug: sea-dog, name: Sea Dog, prompt: You are an old sailor., tags: [sea] }
`,
  });
  client = new OpenAI({ baseURL: farebox.url, apiKey: farebox.owner.secret, maxRetries: 0 });
});
after(async () => {
  try {
    await farebox.audit();
  } finally {
    await farebox.stop();
    await upstream.kill();
    await web.stop();
  }
});
beforeEach(() => {
  upstream.seen.length = 0;
  upstream.script.length = 0;
  web.queries.length = 0;
  web.asked.length = 0;
  web.results = RESULTS;
  web.searchStatus = 200;
});

interface Answer {
  readonly completion: OpenAI.ChatCompletion;
  readonly cost: { readonly usd: number };
  readonly parameters: Record<string, unknown>;
  readonly paidNano: bigint;
  readonly extras: Record<string, unknown>;
  readonly promptTokens: bigint;
}

const user = (content: string): OpenAI.ChatCompletionMessageParam => ({ role: 'user', content });

/** Sends a chat, and reads the receipt and the charge. */
async function ask(
  parameters: Record<string, unknown>,
  more: Partial<OpenAI.ChatCompletionCreateParamsNonStreaming> = {},
): Promise<Answer> {
  const before = await balance();
  const { data, response } = await client.chat.completions
    .create({
      model: 'atlas',
      messages: [user('When is high tide?')],
      ...more,
      svc_parameters: parameters,
    } as OpenAI.ChatCompletionCreateParamsNonStreaming)
    .withResponse();
  const paidNano = before - (await balance());
  const id = response.headers.get('x-request-id') ?? '';
  return { completion: data, ...(await receipt(id)), paidNano, ...shownIn(data) };
}

function shownIn(data: unknown): Pick<Answer, 'cost' | 'parameters'> {
  const { cost, svc_parameters: parameters } = data as {
    cost: Answer['cost'];
    svc_parameters: Answer['parameters'];
  };
  return { cost, parameters };
}

async function receipt(id: string): Promise<Pick<Answer, 'extras' | 'promptTokens'>> {
  const row = await receiptOf(farebox.app.stores.store, farebox.owner.accountId, id);
  assert.ok(row !== undefined);
  return { extras: JSON.parse(row.extras ?? '{}'), promptTokens: row.prompt_tokens };
}

async function balance(): Promise<bigint> {
  return (await farebox.app.stores.ledger.balances(farebox.owner.accountId)).usdNano;
}

function sent(at = -1): { messages: { role: string; content: string }[]; tools?: unknown[] } {
  return JSON.parse(upstream.seen.at(at)?.body ?? '{}');
}

describe('web search on', () => {
  test('results go to the model as fenced data, citations to the caller, the price to the receipt', async () => {
    upstream.script.push({ kind: 'answer', content: 'At noon [REF]1[/REF]', promptTokens: 300 });
    const answer = await ask({ enable_web_search: 'on', enable_web_citations: true });
    assert.deepEqual(web.queries, ['When is high tide?']);
    const [system, question] = sent().messages;
    assert.equal(system?.content, 'House rules.');
    assert.match(question?.content ?? '', /<<<untrusted [0-9a-f]{32} search result 0>>>/);
    assert.match(question?.content ?? '', /\[REF\]N\[\/REF\]/);
    assert.ok(question?.content.endsWith('When is high tide?'));
    assert.deepEqual(answer.parameters['web_search_citations'], [
      {
        title: 'Tides',
        url: 'https://example.com/tides',
        content: 'The moon pulls the sea <<>>',
        date: '2026-04-30',
      },
      {
        title: 'Harbours',
        url: 'https://example.org/harbours',
        content: 'High water at noon',
      },
    ]);
    assert.equal(answer.parameters['enable_web_search'], 'on');
    // 300 prompt tokens at 1 USD, 10 completion tokens at 2 USD per million, and one search.
    assert.equal(answer.paidNano, 300_000n + 20_000n + SEARCH_NANO);
    assert.equal(answer.cost.usd, 0.01032);
    assert.deepEqual(answer.extras, { web_search: { count: 1, usd: '0.010000000' } });
  });

  test('a suffix of the model name enables the search, and the price of the model takes precedence', async () => {
    upstream.script.push({ kind: 'answer', content: 'At noon' });
    const answer = await ask({}, { model: 'cheap-search:enable_web_search=on&unknown=1' });
    assert.equal(web.queries.length, 1);
    assert.equal(answer.parameters['enable_web_search'], 'on');
    assert.deepEqual(answer.extras, { web_search: { count: 1, usd: '0.002000000' } });
    assert.equal(answer.paidNano, 100_000n + 20_000n + 2_000_000n);
  });

  test('a failed search is free, and the completion comes without it', async () => {
    web.searchStatus = 500;
    upstream.script.push({ kind: 'answer', content: 'I do not know' });
    const answer = await ask({ enable_web_search: 'on' });
    assert.deepEqual(answer.parameters['web_search_citations'], []);
    assert.equal(answer.paidNano, 120_000n);
    assert.deepEqual(answer.extras, {});
  });

  test('results are the first chunk of a stream, and documents if requested', async () => {
    upstream.script.push({ kind: 'answer', content: 'At noon' });
    const before = await balance();
    const request = {
      model: 'atlas',
      messages: [user('Tide?')],
      svc_parameters: {
        enable_web_search: 'on',
        include_search_results_in_stream: true,
        return_search_results_as_documents: true,
      },
    };
    const stream = client.chat.completions.stream(request);
    const chunks: unknown[] = [];
    stream.on('chunk', (chunk) => chunks.push(chunk));
    const final = await stream.finalChatCompletion();
    const first = chunks[0] as { choices: unknown[]; svc_parameters: Record<string, unknown[]> };
    assert.deepEqual(first.choices, []);
    assert.equal(first.svc_parameters['web_search_citations']?.length, 2);
    const [call] = final.choices[0]?.message.tool_calls ?? [];
    assert.equal(call?.id, 'web_search_call');
    assert.equal(call?.type === 'function' && call.function.name, 'svc_web_search_documents');
    assert.equal(final.choices[0]?.finish_reason, 'tool_calls');
    assert.equal(final.choices[0]?.message.content, 'At noon');
    assert.equal(before - (await balance()), 120_000n + SEARCH_NANO);
  });
});

describe('web search auto', () => {
  const wants = (query: string, content?: string) => ({
    kind: 'answer' as const,
    toolCalls: [{ name: 'web_search', arguments: JSON.stringify({ query }) }],
    promptTokens: 50,
    completionTokens: 5,
    ...(content === undefined ? {} : { content }),
  });

  test('the model searches, the caller gets one response, and one settle charges every call', async () => {
    upstream.script.push(wants('tide table', 'Let me look.'), wants('harbour'), {
      kind: 'answer',
      content: 'At noon',
      promptTokens: 700,
      completionTokens: 7,
    });
    const answer = await ask({ enable_web_search: 'auto', enable_web_citations: true });
    assert.deepEqual(web.queries, ['tide table', 'harbour']);
    const message = answer.completion.choices[0]?.message;
    assert.equal(message?.content, 'Let me look.\n\nAt noon');
    assert.deepEqual(message?.tool_calls ?? [], []);
    assert.equal(answer.completion.choices[0]?.finish_reason, 'stop');
    assert.equal(upstream.seen.length, 3);
    const roles = sent().messages.map((one) => one.role);
    assert.deepEqual(roles, ['system', 'user', 'assistant', 'tool', 'assistant', 'tool']);
    assert.match(sent().messages[5]?.content ?? '', /Source 2:/);
    assert.equal((answer.parameters['web_search_citations'] as unknown[]).length, 4);
    const { usage } = answer.completion;
    assert.equal(usage?.prompt_tokens, 800);
    assert.equal(usage?.completion_tokens, 17);
    assert.equal(answer.paidNano, 800_000n + 34_000n + 2n * SEARCH_NANO);
    assert.equal(answer.promptTokens, 800n);
    assert.deepEqual(answer.extras, {
      web_search: { count: 2, usd: '0.020000000' },
      engine_calls: 3,
    });
  });

  test('a stream has results first, documents at the end, and no chunk of the search call', async () => {
    upstream.script.push(wants('tide table'), { kind: 'answer', content: 'At noon' });
    const before = await balance();
    const request = {
      model: 'atlas',
      messages: [user('Tide?')],
      svc_parameters: {
        enable_web_search: 'auto',
        include_search_results_in_stream: true,
        return_search_results_as_documents: true,
      },
    };
    const stream = client.chat.completions.stream(request);
    const chunks: OpenAI.ChatCompletionChunk[] = [];
    stream.on('chunk', (chunk) => chunks.push(chunk));
    const final = await stream.finalChatCompletion();
    assert.deepEqual(chunks[0]?.choices, []);
    assert.ok('svc_parameters' in chunks[0]);
    assert.equal(chunks[1]?.choices[0]?.delta.role, 'assistant');
    const choice = final.choices[0];
    assert.equal(choice?.message.content, 'At noon');
    assert.equal(choice?.message.tool_calls?.length, 1);
    assert.equal(choice?.message.tool_calls?.[0]?.id, 'web_search_call');
    assert.equal(choice?.finish_reason, 'tool_calls');
    const last = chunks.at(-1);
    assert.equal(last?.usage?.prompt_tokens, 150);
    assert.equal(before - (await balance()), 150_000n + 30_000n + SEARCH_NANO);
  });

  test('without web search there is one call and no surcharge', async () => {
    upstream.script.push({ kind: 'answer', content: 'Four' });
    const answer = await ask({ enable_web_search: 'auto' });
    assert.equal(answer.completion.choices[0]?.message.content, 'Four');
    assert.equal(upstream.seen.length, 1);
    assert.equal(sent().tools?.length, 1);
    assert.equal(answer.paidNano, 120_000n);
    assert.deepEqual(answer.extras, {});
  });

  test('a model that searches endlessly ends after three searches', async () => {
    for (let round = 0; round < 6; round += 1) upstream.script.push(wants(`again ${round}`));
    const answer = await ask({ enable_web_search: 'auto' });
    assert.equal(web.queries.length, 3);
    assert.equal(upstream.seen.length, 4);
    assert.equal(sent().tools, undefined);
    assert.deepEqual(answer.completion.choices[0]?.message.tool_calls ?? [], []);
    assert.equal(answer.completion.choices[0]?.finish_reason, 'stop');
    assert.equal(answer.paidNano, 4n * (50_000n + 10_000n) + 3n * SEARCH_NANO);
  });

  test("a call of the caller's tool reaches the caller, a search call beside it does not", async () => {
    const tools = [{ type: 'function' as const, function: { name: 'web_search', parameters: {} } }];
    const toolCalls = [
      { name: 'web_search_2', arguments: '{"query":"x"}' },
      { name: 'web_search', arguments: '{"a":1}' },
    ];
    for (const stream of [false, true]) {
      upstream.script.push({ kind: 'answer', toolCalls });
      const request = {
        model: 'atlas',
        messages: [user('Hi')],
        tools,
        svc_parameters: { enable_web_search: 'auto' },
      };
      const final = stream
        ? await client.chat.completions.stream(request).finalChatCompletion()
        : await client.chat.completions.create(request);
      const choice = final.choices[0];
      assert.equal(choice?.finish_reason, 'tool_calls');
      assert.equal(choice?.message.tool_calls?.length, 1);
      const [call] = choice?.message.tool_calls ?? [];
      assert.deepEqual(call?.type === 'function' && call.function.name, 'web_search');
    }
    assert.equal(web.queries.length, 0);
  });

  test('a balance that is too low for a search gets a completion without the tool', async () => {
    const { secret } = await farebox.account('0.5');
    const poor = new OpenAI({ baseURL: farebox.url, apiKey: secret, maxRetries: 0 });
    const request = { messages: [user('Hi')], svc_parameters: { enable_web_search: 'auto' } };
    for (const model of ['atlas', 'dear']) {
      upstream.script.push({ kind: 'answer', content: 'Four' });
      await poor.chat.completions.create({ ...request, model });
    }
    assert.equal(sent(0).tools?.length, 1);
    assert.equal(sent(1).tools, undefined);
  });

  test('without usage the sent text is charged', async () => {
    upstream.script.push(
      { ...wants('tide'), usage: false },
      { kind: 'answer', content: 'At noon', usage: false },
    );
    const answer = await ask({ enable_web_search: 'auto' });
    assert.ok(answer.paidNano > SEARCH_NANO);
    assert.equal(Number(answer.paidNano) / 1e9, answer.cost.usd);
  });
});

describe('pages of the user message', () => {
  test('pages are read as Markdown, the search is bypassed, only successes are billed', async () => {
    web.pages.set('/a', { body: '<title>Page A</title><h1>Low tide</h1><p>at <b>six</b></p>' });
    web.pages.set('/b', { body: 'no', status: 500 });
    upstream.script.push({ kind: 'answer', content: 'At six' });
    const answer = await ask(
      { enable_web_scraping: true, enable_web_search: 'on' },
      { messages: [user(`Read ${web.url}/a and (${web.url}/b), please`)] },
    );
    assert.deepEqual(web.asked.toSorted(), ['/a', '/b']);
    assert.deepEqual(web.queries, []);
    const { content } = sent().messages[1] ?? { content: '' };
    assert.match(content, /Title: Page A/);
    assert.match(content, /# Low tide/);
    assert.match(content, /\/b could not be read/);
    assert.deepEqual(answer.extras, { web_scraping: { count: 1, usd: '0.010000000' } });
    assert.equal(answer.paidNano, 120_000n + 10_000_000n);
  });

  test('at most five addresses are read', async () => {
    upstream.script.push({ kind: 'answer', content: 'ok' });
    const urls = Array.from({ length: 8 }, (_, at) => `${web.url}/p${at}`);
    await ask({ enable_web_scraping: true }, { messages: [user(urls.join(' '))] });
    assert.equal(web.asked.length, 5);
  });

  test('without an address the search runs', async () => {
    upstream.script.push({ kind: 'answer', content: 'ok' });
    await ask({ enable_web_scraping: true, enable_web_search: 'on' });
    assert.equal(web.queries.length, 1);
  });
});

describe('search of the engine itself', () => {
  test('the body enables the search, and the reported results are charged', async () => {
    const extraUsage = { num_sources_used: 3 };
    upstream.script.push({ kind: 'answer', content: 'ok', extraUsage });
    const answer = await ask(
      { enable_x_search: true, enable_web_search: 'on' },
      { model: 'cheap-search' },
    );
    assert.deepEqual(web.queries, []);
    const body = sent() as unknown as { search_parameters: { mode: string } };
    assert.equal(body.search_parameters.mode, 'on');
    assert.deepEqual(answer.extras, { x_search: { count: 3, usd: '0.030000000' } });
    assert.equal(answer.paidNano, 120_000n + 30_000_000n);
  });

  test('the results are cited, with and without a stream', async () => {
    const citations = ['https://news.example/a', 'ftp://no.example', 'https://news.example/a'];
    const search_results = [{ title: 'Post', url: 'https://x.example/1', date: '2026-11-20' }];
    const expected = [
      { title: 'Post', url: 'https://x.example/1', content: '', date: '2026-11-20' },
      { title: 'news.example', url: 'https://news.example/a', content: '' },
    ];
    const usage = { prompt_tokens: 5, completion_tokens: 1 };
    upstream.script.push({
      kind: 'own',
      answer: (response) => {
        const message = { role: 'assistant', content: 'ok' };
        const choices = [{ index: 0, message, finish_reason: 'stop' }];
        response.writeHead(200, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ id: 'c', choices, usage, citations, search_results }));
      },
    });
    const parameters = { enable_x_search: true };
    const body = { model: 'cheap-search', messages: [user('Hi')], svc_parameters: parameters };
    const { secret } = await farebox.account('5');
    const whole = await call(farebox, '/chat/completions', { secret, body });
    assert.deepEqual(whole.body.svc_parameters.web_search_citations, expected);
    upstream.script.push({
      kind: 'own',
      answer: (response) => {
        const event = (choice: object, more: object = {}) =>
          response.write(`data: ${JSON.stringify({ id: 'c', choices: [choice], ...more })}\n\n`);
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        event({ index: 0, delta: { role: 'assistant', content: 'ok' }, finish_reason: null });
        event({ index: 0, delta: {}, finish_reason: 'stop' }, { citations, search_results, usage });
        response.end('data: [DONE]\n\n');
      },
    });
    const stream = await call(farebox, '/chat/completions', {
      secret,
      body: { ...body, stream: true },
    });
    const last = JSON.parse(stream.text.trimEnd().split('\n\n').at(-2)?.slice(6) ?? '');
    assert.deepEqual(last.svc_parameters.web_search_citations, expected);
  });

  test('a model without search gets 400', async () => {
    await assert.rejects(
      ask({ enable_x_search: true }),
      (error) => error instanceof OpenAI.BadRequestError && /social search/.test(error.message),
    );
  });
});

describe('money', () => {
  test('a caller without credit gets 402 and nothing is searched', async () => {
    const { secret } = await farebox.account('0.05');
    const poor = new OpenAI({ baseURL: farebox.url, apiKey: secret, maxRetries: 0 });
    await assert.rejects(
      poor.chat.completions.create({
        model: 'atlas',
        messages: [user('Tide?')],
        svc_parameters: { enable_web_search: 'on' },
      } as OpenAI.ChatCompletionCreateParamsNonStreaming),
      (error) => error instanceof OpenAI.APIError && error.status === 402,
    );
    assert.deepEqual(web.queries, []);
  });

  test('an engine that fails after the search costs nothing', async () => {
    const before = await balance();
    upstream.script.push({ kind: 'status', status: 400, body: '{"error":{"message":"no"}}' });
    await assert.rejects(ask({ enable_web_search: 'on' }));
    assert.equal(await balance(), before);
  });
});

describe('personas', () => {
  test('the system prompts are in the order service, persona, caller', async () => {
    upstream.script.push({ kind: 'answer', content: 'Arr' });
    const messages = [{ role: 'system' as const, content: 'Be brief.' }, user('Hello')];
    const answer = await ask({ character_slug: 'sea-dog' }, { messages });
    assert.equal(
      sent().messages[0]?.content,
      'House rules.\n\nYou are an old sailor.\n\nBe brief.',
    );
    assert.equal(answer.parameters['character_slug'], 'sea-dog');
    upstream.script.push({ kind: 'answer', content: 'Arr' });
    await ask(
      { include_venice_system_prompt: false },
      { messages, model: 'atlas:character_slug=sea-dog' },
    );
    assert.equal(sent().messages[0]?.content, 'You are an old sailor.\n\nBe brief.');
  });

  test('an unknown slug is a 404 before any money moves', async () => {
    await assert.rejects(
      ask({ character_slug: 'nobody' }),
      (error) => error instanceof OpenAI.NotFoundError && /nobody/.test(error.message),
    );
  });

  test('personas are listed and returned without their prompts', async () => {
    const list = await fetch(`${farebox.url}/characters?tags=sea&limit=5`);
    const { object, data } = (await list.json()) as { object: string; data: { slug: string }[] };
    assert.equal(object, 'list');
    assert.deepEqual(
      data.map((one) => one.slug),
      ['sea-dog'],
    );
    const one = await fetch(`${farebox.url}/characters/sea-dog`);
    const shown = await one.text();
    assert.match(shown, /"object":"character"/);
    assert.doesNotMatch(shown, /old sailor/);
    assert.equal((await fetch(`${farebox.url}/characters/nobody`)).status, 404);
    assert.equal((await fetch(`${farebox.url}/characters?limit=0`)).status, 400);
    assert.equal((await fetch(`${farebox.url}/characters?isAdult=perhaps`)).status, 400);
  });

  test('`enable_e2ee` is echoed', async () => {
    upstream.script.push({ kind: 'answer', content: 'ok' });
    const answer = await ask({ enable_e2ee: false });
    assert.equal(answer.parameters['enable_e2ee'], false);
  });
});

describe('a tool loop over one user message', () => {
  const tools = [{ type: 'function' as const, function: { name: 'clock', parameters: {} } }];
  const turn = (id: string): OpenAI.ChatCompletionMessageParam[] => [
    {
      role: 'assistant',
      content: null,
      tool_calls: [{ id, type: 'function', function: { name: 'clock', arguments: '{}' } }],
    },
    { role: 'tool', tool_call_id: id, content: 'Noon' },
  ];

  test('`on` searches and charges once; the same request again is a new search', async () => {
    const question = user('When does the ferry leave?');
    const on = { enable_web_search: 'on', enable_web_citations: true };
    const first = await ask(on, { messages: [question], tools });
    const second = await ask(on, { messages: [question, ...turn('a')], tools });
    const third = await ask(on, { messages: [question, ...turn('a'), ...turn('b')], tools });
    assert.equal(web.queries.length, 1);
    assert.deepEqual(
      [first, second, third].map((one) => one.extras['web_search'] !== undefined),
      [true, false, false],
    );
    assert.ok(first.paidNano >= SEARCH_NANO && second.paidNano < SEARCH_NANO);
    assert.match(JSON.stringify(sent().messages), /The moon pulls the sea/);
    assert.deepEqual(
      third.parameters['web_search_citations'],
      first.parameters['web_search_citations'],
    );
    const anew = await ask(on, { messages: [question], tools });
    assert.equal(web.queries.length, 2);
    assert.ok(anew.paidNano >= SEARCH_NANO);
    const stranger = await farebox.account('5');
    const other = new OpenAI({ baseURL: farebox.url, apiKey: stranger.secret, maxRetries: 0 });
    await other.chat.completions.create({
      model: 'atlas',
      messages: [question, ...turn('a')],
      tools,
      svc_parameters: on,
    } as OpenAI.ChatCompletionCreateParamsNonStreaming);
    assert.equal(web.queries.length, 3, 'what one account paid for is not given to another');
  });

  test('`auto` reuses the result of an equal search, in the loop and in one round, without a second charge', async () => {
    const question = user('And the bus?');
    const search = { name: 'web_search', arguments: '{"query":"bus times"}' };
    const call = { kind: 'answer', toolCalls: [search, search] } as const;
    upstream.script.push(call, { kind: 'answer', content: 'Soon' });
    const first = await ask({ enable_web_search: 'auto' }, { messages: [question] });
    assert.deepEqual(first.extras['web_search'], { count: 1, usd: '0.010000000' });
    const asked = web.queries.length;
    upstream.script.push(
      { kind: 'answer', toolCalls: [search] },
      { kind: 'answer', content: 'Now' },
    );
    const second = await ask({ enable_web_search: 'auto' }, { messages: [question, ...turn('a')] });
    assert.equal(second.extras['web_search'], undefined);
    assert.equal(web.queries.length, asked);
    assert.match(JSON.stringify(sent().messages), /The moon pulls the sea/);
  });

  test('a search of a request that was not charged is searched and billed again', async () => {
    const question = user('And the train?');
    upstream.script.push({ kind: 'status', status: 400 });
    const on = { enable_web_search: 'on' };
    await assert.rejects(ask(on, { messages: [question] }));
    const next = await ask(on, { messages: [question, ...turn('a')], tools });
    assert.equal(web.queries.length, 2);
    assert.ok(next.paidNano >= SEARCH_NANO);
  });
});
