/** Valid chat bodies, and the errors of invalid ones. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as z from 'zod';
import { Fault } from '../../core/faults.ts';
import { parseChatRequest, type ChatRequest } from './chat-request.ts';
import { ChatBody } from './chat-schema.ts';
import { EmbeddingsBody } from '../../embeddings/embeddings-request.ts';

const USER = { role: 'user', content: 'Hi' };

function parse(body: unknown, serviceName = 'svc'): ChatRequest {
  return parseChatRequest(Buffer.from(JSON.stringify(body)), { serviceName });
}

function parseWith(fields: Record<string, unknown>, serviceName = 'svc'): ChatRequest {
  return parse({ model: 'm', messages: [USER], ...fields }, serviceName);
}

/** Whether a member of the caller's body was rewritten or removed. */
function isChanged({ source, fields }: ChatRequest): boolean {
  const keys = Object.keys(source.body);
  if (keys.length !== Object.keys(fields).length) return true;
  return keys.some((key) => source.body[key] !== fields[key]);
}

interface Refusal {
  readonly code: string;
  readonly details: Record<string, unknown>;
  readonly issues: readonly { code: string; path: (string | number)[]; message: string }[];
}

function refusal(body: unknown): Refusal {
  try {
    parse(body);
  } catch (error) {
    assert.ok(error instanceof Fault);
    return {
      code: error.code,
      details: error.options.details as Refusal['details'],
      issues: error.options.fields?.['issues'] as Refusal['issues'],
    };
  }
  throw new assert.AssertionError({ message: 'the body was taken' });
}

function refusedPath(fields: Record<string, unknown>): string | undefined {
  return refusal({ model: 'm', messages: [USER], ...fields }).issues[0]?.path.join('.');
}

test('a plain body keeps its bytes', () => {
  const request = parseWith({ temperature: 0.5, top_k: 3, vendor_field: { x: 1 } });
  assert.equal(isChanged(request), false);
  assert.equal(request.model, 'm');
  assert.equal(request.choiceCount, 1);
  assert.deepEqual(request.fields['vendor_field'], { x: 1 });
});

test('a field out of its range is rejected with its path', () => {
  const bad: Record<string, unknown> = {
    temperature: 2.1,
    min_temp: -0.1,
    max_temp: 3,
    top_p: 1.1,
    min_p: -1,
    top_k: -1,
    frequency_penalty: 2.5,
    presence_penalty: -2.1,
    repetition_penalty: -0.1,
    top_logprobs: -1,
    n: 0,
    seed: 0,
    stop: Array.from({ length: 65 }, () => 'a'),
    logprobs: 'yes',
    stop_token_ids: [-1],
    reasoning_effort: 'huge',
    verbosity: 'loud',
    stream: 'yes',
    prompt_cache_retention: 'forever',
    max_tokens: 1.5,
    metadata: 'x',
    store: 1,
    include: 'x',
    fallbacks: Array.from({ length: 11 }, () => ({ model: 'm' })),
    response_format: { type: 'xml' },
  };
  for (const [key, value] of Object.entries(bad)) {
    assert.equal(refusedPath({ [key]: value })?.split('.')[0], key, key);
  }
});

test('the limits of the ranges are valid', () => {
  const good: Record<string, unknown> = {
    temperature: 2,
    min_temp: 0,
    max_temp: 2,
    top_p: 1,
    min_p: 0,
    top_k: 0,
    seed: 1,
    n: 2,
    frequency_penalty: -2,
    presence_penalty: 2,
    repetition_penalty: 0,
    top_logprobs: 0,
    stop: ['a', 'b', 'c', 'd'],
    stop_token_ids: [0],
    reasoning_effort: 'max',
    verbosity: 'auto',
    prompt_cache_retention: '24h',
    fallbacks: [{ model: 'x' }],
    text: { verbosity: 'low' },
  };
  assert.equal(parseWith(good).choiceCount, 2);
});

test('the cache lifetime has the values of the service and of the SDKs of OpenAI', () => {
  const isExtended = (prompt_cache_retention: string) =>
    parseWith({ prompt_cache_retention }).isCacheExtended;
  for (const value of ['extended', '24h']) assert.equal(isExtended(value), true, value);
  for (const value of ['default', 'in_memory', 'in-memory']) {
    assert.equal(isExtended(value), false, value);
  }
});

test('`null` means absent for every optional field', () => {
  const optional = Object.keys(ChatBody.shape).filter(
    (key) => key !== 'model' && key !== 'messages',
  );
  const nulls = Object.fromEntries(optional.map((key) => [key, null]));
  const request = parseWith(nulls);
  assert.deepEqual(Object.keys(request.fields).sort(), ['messages', 'model']);
  assert.equal(isChanged(request), true);
});

test('`null` means absent in a tool and in a response format', () => {
  const absent = { description: null, strict: null };
  const schema = { type: ['string', 'null'], default: null };
  const { fields } = parseWith({
    tools: [
      { type: 'function', function: { name: 'f', parameters: { a: null }, ...absent }, id: null },
      { type: 'function', function: { name: 'g', parameters: null } },
    ],
    response_format: { type: 'json_schema', json_schema: { name: 'n', schema, ...absent } },
  });
  assert.deepEqual(fields['tools'], [
    { type: 'function', function: { name: 'f', parameters: { a: null } } },
    { type: 'function', function: { name: 'g' } },
  ]);
  assert.deepEqual(fields['response_format'], {
    type: 'json_schema',
    json_schema: { name: 'n', schema },
  });
});

test('`null` means absent in a part of a message', () => {
  const image_url = { url: 'https://e.com/a.png' };
  const parts = [
    { type: 'text', text: 'a' },
    { type: 'image_url', image_url },
    { type: 'file', file: { file_data: 'data:text/plain;base64,AA==' } },
  ];
  const content = [
    { ...parts[0], cache_control: null },
    { ...parts[1], image_url: { ...image_url, detail: null } },
    { ...parts[2], file: { ...parts[2]?.file, file_id: null, filename: null } },
  ];
  const [message] = parseWith({ messages: [{ role: 'user', content }] }).messages;
  assert.deepEqual(message?.content, parts);
});

test('the 400 contains the formatted tree and flat issues, and never values', () => {
  const { code, details, issues } = refusal({
    model: 'm',
    temperature: 3,
    messages: [USER, { role: 'user', content: [{ type: 'text', text: 7777 }] }],
  });
  assert.equal(code, 'INVALID_REQUEST');
  assert.deepEqual(Object.keys(details).sort(), ['_errors', 'messages', 'temperature']);
  assert.deepEqual(
    issues.map((issue) => issue.path.join('.')),
    ['messages.1.content.0.text', 'temperature'],
  );
  assert.equal(JSON.stringify([details, issues]).includes('7777'), false);
});

test('the 400 for a hostile body has a limited size', () => {
  const messages = Array.from({ length: 5000 }, () => ({ role: 'user', content: [{}, {}] }));
  assert.equal(refusal({ model: 'm', messages }).issues.length, 50);
});

test('a body that is no JSON object is rejected', () => {
  const bytes =
    (text: string): (() => unknown) =>
    () =>
      parseChatRequest(Buffer.from(text), { serviceName: 'svc' });
  assert.throws(bytes(''), { code: 'INVALID_JSON' });
  assert.throws(bytes('{"model":'), { code: 'INVALID_JSON' });
  assert.throws(bytes('[1]'), { code: 'INVALID_REQUEST' });
  const broken = Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]);
  assert.throws(() => parseChatRequest(broken, { serviceName: 'svc' }), { code: 'INVALID_JSON' });
});

test('missing required fields are named', () => {
  assert.deepEqual(
    refusal({})
      .issues.map((issue) => String(issue.path[0]))
      .sort(),
    ['messages', 'model'],
  );
  assert.equal(refusedPath({ messages: [] }), 'messages');
});

test('output caps of zero or less are ignored, and max_completion_tokens has priority', () => {
  assert.equal(parseWith({ max_tokens: -1 }).maxOutputTokens, undefined);
  assert.equal(parseWith({ max_tokens: 0, max_completion_tokens: 7 }).maxOutputTokens, 7);
  assert.equal(parseWith({ max_tokens: 5 }).maxOutputTokens, 5);
  assert.equal(parseWith({ max_tokens: 5, max_completion_tokens: 7 }).maxOutputTokens, 7);
});

test('aliases are rewritten, and the canonical name has priority', () => {
  const request = parse({
    model: 'm',
    input: 'Hello',
    max_output_tokens: 9,
    promptCacheKey: 'k',
    web_search: true,
  });
  assert.deepEqual(request.messages, [{ role: 'user', content: 'Hello' }]);
  assert.equal(request.maxOutputTokens, 9);
  assert.equal(request.promptCacheKey, 'k');
  assert.equal(request.parameters.enable_web_search, 'on');
  assert.deepEqual(Object.keys(request.fields).sort(), [
    'max_tokens',
    'messages',
    'model',
    'prompt_cache_key',
  ]);
  assert.equal(parseWith({ max_tokens: 3, max_output_tokens: 9 }).maxOutputTokens, 3);
});

test('reasoning_effort has priority over reasoning.effort and reasoning.enabled', () => {
  assert.equal(
    parseWith({ reasoning_effort: 'low', reasoning: { effort: 'high' } }).reasoningEffort,
    'low',
  );
  assert.equal(parseWith({ reasoning: { effort: 'high' } }).reasoningEffort, 'high');
  assert.equal(parseWith({ reasoning: { enabled: false } }).isThinkingOff, true);
  assert.equal(parseWith({ reasoning: { enabled: false, effort: 'low' } }).isThinkingOff, false);
  assert.equal(parseWith({ reasoning_effort: 'none' }).isThinkingOff, true);
});

test('verbosity is read from either member, and `auto` is unset', () => {
  assert.equal(parseWith({ text: { verbosity: 'low' } }).verbosity, 'low');
  assert.equal(parseWith({ verbosity: 'high', text: { verbosity: 'low' } }).verbosity, 'high');
  assert.equal(parseWith({ verbosity: 'auto' }).verbosity, undefined);
});

test('service parameters have defaults, and unknown ones are dropped', () => {
  const { parameters } = parseWith({
    svc_parameters: { enable_web_search: 'auto', nonsense: 1, character_slug: null },
  });
  assert.deepEqual(parameters, {
    enable_e2ee: true,
    enable_web_search: 'auto',
    enable_web_citations: false,
    enable_web_scraping: false,
    enable_x_search: false,
    include_venice_system_prompt: true,
    include_search_results_in_stream: false,
    return_search_results_as_documents: false,
    strip_thinking_response: false,
    disable_thinking: false,
  });
});

test('`__proto__` is an unknown service parameter', () => {
  const own = '{ "enable_e2ee": true, "__proto__": { "disable_thinking": true } }';
  const { parameters } = parseWith({ svc_parameters: JSON.parse(own) as unknown });
  assert.equal(parameters.disable_thinking, false);
});

test('service parameters are also read under the name of the service', () => {
  const asVenice = { venice_parameters: { disable_thinking: true } };
  assert.equal(parseWith(asVenice, 'venice').parameters.disable_thinking, true);
  const unknown = parseWith(asVenice, 'svc');
  assert.equal(unknown.parameters.disable_thinking, false);
  assert.deepEqual(unknown.fields['venice_parameters'], { disable_thinking: true });
});

test('model suffixes override the body, are decoded, and ignore unknown names', () => {
  const request = parse({
    model:
      'qwen3:0.6b:enable_web_search=on&character_slug=a%20b&foo=1&strip_thinking_response=true',
    messages: [USER],
    svc_parameters: { enable_web_search: 'off' },
  });
  assert.equal(request.model, 'qwen3:0.6b');
  assert.equal(request.parameters.enable_web_search, 'on');
  assert.equal(request.parameters.character_slug, 'a b');
  assert.equal(request.parameters.strip_thinking_response, true);
  assert.equal(
    refusal({ model: 'm:disable_thinking=maybe', messages: [USER] }).issues[0]?.path.join('.'),
    'svc_parameters.disable_thinking',
  );
});

test('every kind of message and part is valid', () => {
  const messages = [
    { role: 'system', content: 'S' },
    {
      role: 'developer',
      content: [{ type: 'text', text: 'D', cache_control: { type: 'ephemeral', ttl: '1h' } }],
    },
    {
      role: 'user',
      name: 'u',
      content: [
        { type: 'text', text: 'T' },
        { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==', detail: 'low' } },
        { type: 'input_audio', input_audio: { data: 'AA==', format: 'wav' } },
        { type: 'video_url', video_url: { url: 'https://example.com/a.mp4' } },
        {
          type: 'file',
          file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,AA==' },
        },
      ],
    },
    {
      role: 'assistant',
      content: null,
      tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } }],
    },
    { role: 'tool', tool_call_id: 'c', content: [{ type: 'text', text: 'R' }] },
    { role: 'assistant', content: 'A', reasoning_content: 'r', reasoning_details: [{ type: 'x' }] },
  ];
  const request = parse({ model: 'm', messages });
  assert.equal(isChanged(request), false);
  const { textBytes, ...facts } = request.facts;
  assert.deepEqual(facts, {
    messageCount: 6,
    imageCount: 1,
    imageMessageCount: 1,
    audioCount: 1,
    videoCount: 1,
    fileCount: 1,
    unknownBytes: 0,
  });
  assert.equal(
    textBytes,
    'S'.length +
      'D'.length +
      'u'.length +
      'T'.length +
      'f{}'.length +
      'RAr'.length +
      '[{"type":"x"}]'.length,
  );
});

test('unknown members count for the bound of the prompt, not for its bill', () => {
  const text = 'x'.repeat(1000);
  const plain = parseWith({}).facts;
  assert.equal(plain.unknownBytes, 0);
  const { textBytes, unknownBytes } = parseWith({ documents: [{ text }] }).facts;
  assert.equal(textBytes, plain.textBytes);
  assert.ok(unknownBytes > 1000);
  const hidden = parse({ model: 'm', messages: [{ role: 'user', content: 'Hi', note: text }] });
  assert.equal(hidden.facts.textBytes, 2);
  assert.ok(hidden.facts.unknownBytes > 1000);
  assert.deepEqual(parseWith({ metadata: { user: 'anna' } }).facts, plain);
});

test('messages is a list; only its alias `input` may be a string', () => {
  assert.equal(refusedPath({ messages: 'Hello' }), 'messages');
  const { messages } = parse({ model: 'm', input: 'Hello' });
  assert.deepEqual(messages, [{ role: 'user', content: 'Hello' }]);
});

test('a forced tool choice requires the tool', () => {
  const tools = [{ type: 'function', function: { name: 'f' } }];
  const named = (name: string) => ({ type: 'function', function: { name } });
  for (const tool_choice of [
    'required',
    'any',
    { type: 'any' },
    named('f'),
    { type: 'tool', name: 'f' },
  ]) {
    assert.equal(refusedPath({ tool_choice }), 'tool_choice', JSON.stringify(tool_choice));
    assert.equal(refusedPath({ tool_choice, tools: [] }), 'tool_choice');
    assert.ok(parseWith({ tool_choice, tools }).toolChoice);
  }
  assert.equal(refusedPath({ tools, tool_choice: named('g') }), 'tool_choice');
  for (const tool_choice of ['auto', 'none', null]) {
    assert.equal(parseWith({ tool_choice }).toolChoice, undefined);
  }
  // A choice of search alone forces the search.
  const search = parseWith({ tools: [{ type: 'web_search' }], tool_choice: 'required' });
  assert.equal(search.parameters.enable_web_search, 'on');
  assert.equal(search.toolChoice, undefined);
});

test('every service parameter may be a suffix, and unknown ones are dropped', () => {
  const suffixed = (model: string) => parse({ model, messages: [{ role: 'user', content: 'Hi' }] });
  const off = suffixed('qwen3:0.6b:enable_e2ee=false');
  assert.deepEqual([off.model, off.parameters.enable_e2ee], ['qwen3:0.6b', false]);
  const foreign = suffixed('m:level2_x=1&enable_web_search=on');
  assert.deepEqual([foreign.model, foreign.parameters.enable_web_search], ['m', 'on']);
});

test("metadata contains text tags within OpenAI's limits", () => {
  const given = { user: 'anna', seats: 3, beta: true, at: { x: [1] }, no: null, empty: '' };
  assert.deepEqual(parseWith({ metadata: given }).metadata, {
    user: 'anna',
    seats: '3',
    beta: 'true',
    at: '{"x":[1]}',
    empty: '',
  });
  assert.equal(parseWith({ metadata: {} }).metadata, undefined);
  assert.equal(parseWith({ metadata: { a: null } }).metadata, undefined);
  const most = Object.fromEntries(Array.from({ length: 16 }, (_, at) => [`n${at}`, 'v']));
  assert.equal(Object.keys(parseWith({ metadata: most }).metadata ?? {}).length, 16);
  const wrong: Record<string, unknown>[] = [
    { ...most, further: 'v' },
    { ['n'.repeat(65)]: 'v' },
    { '': 'v' },
    { n: 'v'.repeat(513) },
    { n: 'ä'.repeat(257) },
    { n: 'a\0b' },
    { n: '\ud800' },
  ];
  for (const metadata of wrong) {
    assert.equal(refusedPath({ metadata })?.split('.')[0], 'metadata', JSON.stringify(metadata));
  }
});

test('the limits of parts per message are named', () => {
  const parts = (count: number, part: unknown): unknown => ({
    messages: [{ role: 'user', content: Array.from({ length: count }, () => part) }],
  });
  const image = { type: 'image_url', image_url: { url: 'https://e.com/i.png' } };
  const audio = { type: 'input_audio', input_audio: { data: 'AA' } };
  const video = { type: 'video_url', video_url: { url: 'https://e.com/v.mp4' } };
  const file = { type: 'file', file: { file_data: 'data:text/plain;base64,AA==' } };
  for (const [part, cap] of [
    [image, 10],
    [audio, 5],
    [video, 3],
    [file, 5],
  ] as const) {
    assert.ok(parseWith(parts(cap, part) as Record<string, unknown>));
    assert.match(
      refusal({ model: 'm', ...(parts(cap + 1, part) as object) }).issues[0]?.message ?? '',
      new RegExp(`At most ${cap} `),
    );
  }
});

test('a file may be bare base64, as in the SDK of OpenAI', () => {
  const content = (file_data: string) => [
    { type: 'file', file: { filename: 'a.pdf', file_data }, cache_control: { type: 'ephemeral' } },
  ];
  const parsed = (file_data: string) =>
    parseWith({ messages: [{ role: 'user', content: content(file_data) }] }).messages[0]?.content;
  const url = 'data:application/octet-stream;base64,AA==';
  assert.deepEqual(parsed('AA=='), content(url));
  assert.deepEqual(parsed(url), content(url));
  for (const wrong of ['ftp://e.com/a.pdf', '']) {
    const messages = [{ role: 'user', content: content(wrong) }];
    assert.equal(refusedPath({ messages }), 'messages.0.content.0.file.file_data');
  }
});

test('empty assistant messages are dropped, and a request with only those is rejected', () => {
  const silent = [
    { role: 'assistant', content: null },
    { role: 'assistant', content: '' },
    { role: 'assistant', tool_calls: [] },
  ];
  assert.deepEqual(parse({ model: 'm', messages: [USER, ...silent] }).messages, [USER]);
  assert.equal(refusal({ model: 'm', messages: silent }).issues[0]?.path[0], 'messages');
});

test('tools in every format become functions and keep `strict`', () => {
  const parameters = { type: 'object', properties: {} };
  const request = parseWith({
    tools: [
      { type: 'function', function: { name: 'a', parameters, strict: true } },
      { type: 'function', name: 'b', description: 'B', parameters, strict: true },
      { name: 'c', input_schema: parameters },
    ],
    tool_choice: { type: 'tool', name: 'c' },
  });
  assert.deepEqual(
    request.tools.map((tool) => tool.function),
    [
      { name: 'a', parameters, strict: true },
      { name: 'b', description: 'B', parameters, strict: true },
      { name: 'c', parameters },
    ],
  );
  assert.deepEqual(request.toolChoice, { type: 'function', function: { name: 'c' } });
  assert.equal(request.tools[0], (request.source.body['tools'] as unknown[])[0]);
});

test('search tools become parameters and leave the list', () => {
  const request = parseWith({
    tools: [{ type: 'web_search' }, { type: 'x_search' }],
    tool_choice: 'auto',
  });
  assert.equal(request.parameters.enable_web_search, 'auto');
  assert.equal(request.parameters.enable_x_search, true);
  assert.equal(Object.hasOwn(request.fields, 'tools'), false);
  assert.equal(Object.hasOwn(request.fields, 'tool_choice'), false);
});

test('search tools do not search if `tool_choice` is `none`', () => {
  const searches = [{ type: 'web_search' }, { type: 'x_search' }];
  for (const tools of [searches, [...searches, { type: 'function', function: { name: 'f' } }]]) {
    for (const tool_choice of ['none', { type: 'none' }]) {
      const { parameters } = parseWith({ tools, tool_choice });
      assert.equal(parameters.enable_web_search, 'off');
      assert.equal(parameters.enable_x_search, false);
    }
  }
});

test('allowed tools leave out the other tools', () => {
  const named = (name: string) => ({ type: 'function', function: { name } });
  const tools = [named('a'), named('b'), named('c')];
  for (const mode of ['auto', 'required']) {
    const allowed_tools = { mode, tools: [named('c'), named('a')] };
    const request = parseWith({ tools, tool_choice: { type: 'allowed_tools', allowed_tools } });
    assert.equal(request.toolChoice, mode);
    assert.deepEqual(request.fields['tools'], [tools[0], tools[2]]);
  }
  const unknown = { mode: 'auto', tools: [named('a'), named('x')] };
  for (const allowed_tools of [unknown, { mode: 'auto', tools: [] }, undefined]) {
    const tool_choice = { type: 'allowed_tools', allowed_tools };
    assert.equal(refusedPath({ tools, tool_choice }), 'tool_choice');
    assert.equal(refusedPath({ tool_choice }), 'tool_choice');
  }
});

test('tool_choice accepts every format', () => {
  const tools = [{ type: 'function', function: { name: 'f' } }];
  for (const [given, taken] of [
    ['auto', 'auto'],
    ['any', 'required'],
    [{ type: 'auto' }, 'auto'],
    [{ type: 'any' }, 'required'],
  ] as const) {
    assert.equal(parseWith({ tools, tool_choice: given }).toolChoice, taken);
  }
  assert.equal(refusedPath({ tools, tool_choice: 'sometimes' }), 'tool_choice');
});

test('response_format accepts a wrapped, a bare and a flat schema', () => {
  const schema = { type: 'object', properties: { a: { type: 'string' } } };
  const wrapped = { type: 'json_schema', json_schema: { name: 'n', strict: true, schema } };
  const request = parseWith({ response_format: wrapped });
  assert.equal(request.responseFormat, request.source.body['response_format']);
  for (const given of [
    { type: 'json_schema', json_schema: schema },
    { type: 'json_schema', schema },
  ]) {
    assert.deepEqual(parseWith({ response_format: given }).responseFormat, {
      type: 'json_schema',
      json_schema: { name: 'response', schema },
    });
  }
  // A format without a schema is no schema itself.
  for (const missing of [{}, { description: 'd', strict: true }, { schema: null }]) {
    const json_schema = { name: 'n', ...missing };
    const path = refusedPath({ response_format: { type: 'json_schema', json_schema } });
    assert.equal(path, 'response_format.json_schema.schema');
  }
});

test('Anthropic blocks and Responses items become canonical messages', () => {
  const request = parse({
    model: 'm',
    messages: [
      {
        role: 'user',
        content: [
          { type: 'image', source: { type: 'base64', media_type: 'image/jpeg', data: 'QQ==' } },
          { type: 'input_text', text: 'look' },
        ],
      },
      {
        role: 'assistant',
        content: [
          { type: 'thinking', thinking: 'hm', signature: 's' },
          { type: 'tool_use', id: 't1', name: 'f', input: { a: 1 } },
        ],
      },
      {
        role: 'user',
        content: [
          { type: 'tool_result', tool_use_id: 't1', content: [{ type: 'text', text: 'ok' }] },
          { type: 'text', text: 'go on' },
        ],
      },
      { type: 'function_call', call_id: 'c1', name: 'g', arguments: '{}' },
      { type: 'function_call', call_id: 'c2', name: 'h', arguments: '{}' },
      { type: 'function_call_output', call_id: 'c1', output: 'done' },
      { role: 'user', content: [{ type: 'image', image: 'https://e.com/a.png' }] },
    ],
  });
  assert.deepEqual(JSON.parse(JSON.stringify(request.messages)), [
    {
      role: 'user',
      content: [
        { type: 'image_url', image_url: { url: 'data:image/jpeg;base64,QQ==' } },
        { type: 'text', text: 'look' },
      ],
    },
    {
      role: 'assistant',
      content: null,
      reasoning_content: 'hm',
      tool_calls: [{ id: 't1', type: 'function', function: { name: 'f', arguments: '{"a":1}' } }],
    },
    { role: 'tool', tool_call_id: 't1', content: [{ type: 'text', text: 'ok' }] },
    { role: 'user', content: [{ type: 'text', text: 'go on' }] },
    {
      role: 'assistant',
      content: null,
      tool_calls: [
        { id: 'c1', type: 'function', function: { name: 'g', arguments: '{}' } },
        { id: 'c2', type: 'function', function: { name: 'h', arguments: '{}' } },
      ],
    },
    { role: 'tool', tool_call_id: 'c1', content: 'done' },
    { role: 'user', content: [{ type: 'image_url', image_url: { url: 'https://e.com/a.png' } }] },
  ]);
});

test('bodies of common clients are accepted unchanged', () => {
  const bodies = [
    // openai-node: create, parse with a schema, tools round trip.
    { messages: [{ role: 'developer', content: 'Be brief' }, USER], model: 'm' },
    {
      model: 'm',
      messages: [USER],
      response_format: {
        type: 'json_schema',
        json_schema: {
          name: 'event',
          strict: true,
          schema: {
            type: 'object',
            properties: { d: { type: 'string' } },
            required: ['d'],
            additionalProperties: false,
            $schema: 'http://json-schema.org/draft-07/schema#',
          },
        },
      },
      stream: false,
    },
    {
      model: 'm',
      stream: true,
      tool_choice: 'auto',
      parallel_tool_calls: true,
      tools: [
        { type: 'function', function: { name: 'w', parameters: { type: 'object' }, strict: true } },
      ],
      messages: [
        USER,
        {
          role: 'assistant',
          content: 'x',
          refusal: 'no',
          tool_calls: [
            { type: 'function', id: 'call_1', function: { name: 'w', arguments: '{}' } },
          ],
        },
        { role: 'tool', tool_call_id: 'call_1', content: '{"t":1}' },
      ],
    },
    // AI SDK with the openai-compatible provider.
    {
      model: 'm',
      max_tokens: 400,
      temperature: 0,
      messages: [
        { role: 'system', content: 's' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'a' },
            { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } },
          ],
        },
        { role: 'assistant', content: 'b', reasoning_content: 'c' },
      ],
      stream: true,
      stream_options: { include_usage: true },
    },
    {
      model: 'm',
      messages: [
        {
          role: 'user',
          content: [
            {
              type: 'file',
              file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,AA==' },
            },
          ],
        },
      ],
    },
    // LangChain.js.
    {
      model: 'm',
      temperature: 0.2,
      n: 1,
      stream: true,
      stream_options: { include_usage: true },
      messages: [{ role: 'user', content: 'x' }],
      stop: ['a'],
    },
  ];
  for (const body of bodies) assert.equal(isChanged(parse(body)), false, JSON.stringify(body));
});

test('nulls and empty call lists in messages are removed', () => {
  const request = parse({
    model: 'm',
    messages: [
      USER,
      { role: 'assistant', content: 'x', tool_calls: null, function_call: null, refusal: null },
      USER,
    ],
  });
  assert.deepEqual(request.messages[1], { role: 'assistant', content: 'x' });
  assert.equal(request.messages[0], (request.source.body['messages'] as unknown[])[0]);
});

test('the schemas convert to JSON Schema', () => {
  const chat = z.toJSONSchema(ChatBody, { io: 'input' });
  assert.deepEqual(chat.required, ['model', 'messages']);
  assert.equal(typeof chat.properties?.['temperature'], 'object');
  const embeddings = z.toJSONSchema(EmbeddingsBody, { io: 'input' });
  assert.deepEqual(embeddings.required, ['input', 'model']);
});

test('a body with too many tokens of JSON is rejected before it is parsed', () => {
  const refused = (json: string, code: string, words: RegExp): void => {
    const parse = (): unknown => parseChatRequest(Buffer.from(json), { serviceName: 'svc' });
    assert.throws(parse, (error: unknown) => {
      assert.ok(error instanceof Fault);
      assert.equal(error.code, code);
      assert.match(error.message, words);
      return true;
    });
  };
  const inside = (text: string): string => `{"model":"m","messages":[${text}]}`;
  refused(inside(Array.from({ length: 150_000 }, () => '{}').join()), 'INVALID_JSON', /pieces/);
  refused(inside('1,'.repeat(2_000_001) + '1'), 'INVALID_JSON', /pieces/);
  refused('['.repeat(1_000_000), 'INVALID_JSON', /deeply/);
  const members = Array.from({ length: 1_001 }, (_, at) => `"m${at}":1`).join();
  refused(`{${members}}`, 'INVALID_REQUEST', /1000 members/);
  const tools = Array.from({ length: 1_025 }, () => ({
    type: 'function',
    function: { name: 'a' },
  }));
  const body = { model: 'm', messages: [USER], tools };
  refused(JSON.stringify(body), 'INVALID_REQUEST', /1024 tools/);
  // Structure inside a text is text.
  const text = JSON.stringify('{[:,'.repeat(1_000_000));
  parseChatRequest(Buffer.from(inside(`{"role":"user","content":${text}}`)), {
    serviceName: 'svc',
  });
});
