/** Requests to engines, and requests that a model rejects before. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Fault } from '../../core/faults.ts';
import { fitToModel, type ModelAbilities } from './capability-gates.ts';
import { parseChatRequest, type ChatRequest } from './chat-request.ts';
import { engineDialect, localDialect, withoutRefused } from './engine-dialect.ts';
import { engineFields, engineRequest, type EngineTarget } from './engine-request.ts';
import { anyCharacter } from '../../../test/support/any-character.ts';

const ALL: ModelAbilities = {
  id: 'm',
  capabilities: new Set([
    'vision',
    'multipleImages',
    'audioInput',
    'videoInput',
    'functionCalling',
    'responseSchema',
    'logProbs',
    'reasoning',
    'reasoningEffort',
    'xSearch',
  ]),
  maxCompletionTokens: 100,
};
const NONE: ModelAbilities = { ...ALL, capabilities: new Set() };
const USER = { role: 'user', content: 'Hi' };

function dialectAt(host: string, more: Partial<Parameters<typeof engineDialect>[0]> = {}) {
  const url = `https://${host}/v1`;
  return engineDialect({ url, dialect: 'auto', quirks: {}, continuousUsage: false, ...more });
}

const TARGET: EngineTarget = {
  model: 'engine-m',
  dialect: dialectAt('127.0.0.1'),
  abilities: ALL,
  maxOutputTokens: 50,
};

function parse(fields: object): ChatRequest {
  const body = { model: 'm', messages: [USER], ...fields };
  return parseChatRequest(Buffer.from(JSON.stringify(body)), { serviceName: 'svc' });
}

function sent(fields: object, target: Partial<EngineTarget> = {}): Record<string, unknown> {
  return JSON.parse(engineRequest(parse(fields), { ...TARGET, ...target }).toString());
}

function reasons(fields: object, abilities: ModelAbilities): string[] {
  try {
    fitToModel(parse(fields), abilities, abilities.capabilities.size > 0);
  } catch (error) {
    assert.ok(error instanceof Fault);
    assert.equal(error.code, 'INVALID_REQUEST');
    const issues = error.options.fields?.['issues'] as { message: string; path: string[] }[];
    return issues.map((issue) => `${issue.path[0]}: ${issue.message}`);
  }
  return [];
}

function imageMessage(...urls: string[]): object {
  return { role: 'user', content: urls.map((url) => ({ type: 'image_url', image_url: { url } })) };
}

test('each missing capability is a separate issue', () => {
  const asked = {
    messages: [
      {
        role: 'user',
        content: [
          { type: 'image_url', image_url: { url: 'https://e.com/i.png' } },
          { type: 'input_audio', input_audio: { data: 'AA' } },
          { type: 'video_url', video_url: { url: 'https://e.com/v.mp4' } },
        ],
      },
    ],
    tools: [{ type: 'function', function: { name: 'f' } }],
    response_format: { type: 'json_object' },
    logprobs: true,
    svc_parameters: { enable_web_search: 'on', enable_x_search: true },
    max_completion_tokens: 101,
  };
  assert.equal(reasons(asked, NONE).length, 9);
  assert.deepEqual(reasons(asked, { ...ALL, maxCompletionTokens: 200 }), []);
});

test('an output cap above the model names both numbers', () => {
  assert.match(reasons({ max_tokens: 101 }, ALL)[0] ?? '', /max_tokens: 101 .* 100 /);
  assert.deepEqual(reasons({ max_tokens: 100 }, ALL), []);
});

test('response_format `text` and search `auto` require no capability', () => {
  assert.deepEqual(
    reasons(
      { response_format: { type: 'text' }, svc_parameters: { enable_web_search: 'auto' } },
      NONE,
    ),
    [],
  );
});

test('a single-image model keeps the images of the last message with images', () => {
  const single = {
    ...ALL,
    capabilities: ALL.capabilities.difference(new Set(['multipleImages'])),
  };
  const mixed = {
    role: 'user',
    content: [
      { type: 'text', text: 'old' },
      { type: 'image_url', image_url: { url: 'https://e.com/1' } },
    ],
  };
  const fitted = fitToModel(
    parse({
      messages: [mixed, imageMessage('https://e.com/2'), imageMessage('https://e.com/3'), USER],
    }),
    single,
    true,
  );
  assert.deepEqual(fitted.messages, [
    { role: 'user', content: [{ type: 'text', text: 'old' }] },
    { role: 'user', content: [{ type: 'text', text: '[image omitted]' }] },
    imageMessage('https://e.com/3'),
    USER,
  ]);
  assert.equal(fitted.facts.imageCount, 1);
  assert.match(
    reasons({ messages: [imageMessage('https://e.com/1', 'https://e.com/2')] }, single)[0] ?? '',
    /at most 1 images/,
  );
  const many = parse({
    messages: [imageMessage('https://e.com/1'), imageMessage('https://e.com/2')],
  });
  assert.equal(fitToModel(many, ALL, true), many);
});

test('the engine receives its model name and the cap, and no members of the service', () => {
  assert.deepEqual(
    sent({
      user: 'u',
      store: true,
      metadata: { a: 1 },
      fallbacks: [{ model: 'x' }],
      svc_parameters: {},
      max_tokens: 7,
      prompt_cache_key: 'k',
      prompt_cache_retention: 'extended',
      stream_options: { include_usage: false },
      vendor: 1,
    }),
    {
      model: 'engine-m',
      messages: [USER],
      max_tokens: 50,
      max_completion_tokens: 50,
      prompt_cache_key: 'k',
      vendor: 1,
    },
  );
});

test('no member that exceeds the hold or concerns other requests reaches the engine', () => {
  const names = ['n_predict', 'max_new_tokens', 'num_predict', 'best_of', 'n_cmpl'];
  names.push('priority', 'lora_path', 'mm_processor_kwargs', 'bootstrap_host');
  names.push('plugins', 'search_parameters', 'web_search_options');
  const asked = Object.fromEntries(names.map((name) => [name, 100_000]));
  assert.equal(parse(asked).fields['n_predict'], 100_000);
  for (const name of names) assert.equal(sent(asked)[name], undefined);
  assert.equal(sent({ mirostat: 2 })['mirostat'], 2);
});

test('no member that selects other models reaches the engine', () => {
  const names = ['models', 'fallbacks', 'context_window_fallbacks', 'extra_body'];
  const given = Object.fromEntries(names.map((name) => [name, [{ model: 'expensive' }]]));
  for (const dialect of [{}, { dialect: 'litellm' }, { dialect: 'openrouter' }] as const) {
    const body = sent(given, { dialect: dialectAt('10.0.0.1', dialect) });
    for (const name of names) assert.equal(body[name], undefined);
  }
});

test('Gemini receives the members of Google in `extra_body`', () => {
  const given = { extra_body: { google: { thinking_config: { include_thoughts: true } } } };
  const dialect = dialectAt('generativelanguage.googleapis.com');
  assert.deepEqual(sent(given, { dialect })['extra_body'], given.extra_body);
});

test('the dialect selects the member names', () => {
  const openai = { dialect: dialectAt('api.openai.com') };
  assert.deepEqual(
    sent(
      {
        stream: true,
        prompt_cache_retention: '24h',
        messages: [{ role: 'developer', content: 'x' }],
      },
      openai,
    ),
    {
      model: 'engine-m',
      stream: true,
      messages: [{ role: 'developer', content: 'x' }],
      max_completion_tokens: 50,
      prompt_cache_retention: '24h',
      stream_options: { include_usage: true, include_obfuscation: false },
    },
  );
  assert.deepEqual(sent({ messages: [{ role: 'developer', content: 'x' }] })['messages'], [
    { role: 'system', content: 'x' },
  ]);
});

test('a dialect is a preset by name or host, with the configured changes', () => {
  const asked = {
    prompt_cache_retention: 'extended',
    fallbacks: [{ model: 'x' }],
    reasoning: { enabled: false },
    messages: [
      { role: 'developer', content: 'x' },
      { role: 'assistant', content: 'a', reasoning_content: 'r' },
      USER,
    ],
  };
  const plain = { model: 'engine-m', reasoning_effort: 'none' };
  const roles = (role: string, more: object = {}) => [
    { role, content: 'x' },
    { role: 'assistant', content: 'a', ...more },
    USER,
  ];
  const reasoned = { reasoning_content: 'r' };
  assert.deepEqual(sent(asked, { dialect: dialectAt('proxy.example', { dialect: 'openai' }) }), {
    ...plain,
    max_completion_tokens: 50,
    prompt_cache_retention: '24h',
    messages: roles('developer', reasoned),
  });
  assert.deepEqual(sent(asked, { dialect: dialectAt('api.mistral.ai') }), {
    ...plain,
    max_tokens: 50,
    messages: roles('system'),
  });
  assert.deepEqual(sent(asked, { dialect: dialectAt('10.0.0.1', { dialect: 'litellm' }) }), {
    ...plain,
    max_tokens: 50,
    messages: roles('system', reasoned),
  });
  const quirks = {
    outputCap: 'max_tokens' as const,
    developerRole: true,
    promptCacheRetention: true,
    fallbacks: true,
    thinkingSwitch: false,
    leaveOut: ['reasoning_effort'],
    leaveOutOfMessages: ['reasoning_content'],
  };
  assert.deepEqual(sent(asked, { dialect: dialectAt('10.0.0.1', { quirks }) }), {
    model: 'engine-m',
    max_tokens: 50,
    prompt_cache_retention: '24h',
    fallbacks: [{ model: 'x' }],
    messages: roles('developer'),
  });
});

test('a second engine found on this machine has the dialect of its kind', () => {
  for (const kind of ['vllm', 'ollama', 'llama.cpp', 'lm-studio'])
    assert.equal(localDialect(`${kind}-2`), localDialect(kind));
  assert.notEqual(localDialect('ollama'), localDialect('embedded'));
});

test('a rejected parameter is left out unless it is essential', () => {
  const dialect = dialectAt('127.0.0.1', { continuousUsage: true });
  const refused = (name: string, inner?: string) =>
    withoutRefused(dialect, { name, inMessages: false, inner });
  assert.equal(refused('max_tokens')?.outputCap, 'max_completion_tokens');
  assert.equal(refused('max_completion_tokens')?.outputCap, 'max_tokens');
  const one = refused('max_tokens');
  assert.ok(one);
  const other = { name: 'max_completion_tokens', inMessages: false, inner: undefined };
  assert.equal(withoutRefused(one, other), undefined);
  assert.equal(refused('stream_options', 'continuous_usage_stats')?.continuousUsage, false);
  assert.deepEqual(refused('stream_options')?.leaveOut, ['stream_options']);
  assert.deepEqual(refused('top_k')?.leaveOut, ['top_k']);
  for (const name of ['tools', 'messages', 'n', 'stop', 'response_format']) {
    assert.equal(refused(name), undefined, name);
  }
  const named = { name: 'name', inMessages: true, inner: undefined };
  assert.deepEqual(withoutRefused(dialect, named)?.leaveOutOfMessages, ['name']);
  assert.equal(withoutRefused(dialect, { ...named, name: 'content' }), undefined);
  const long = { name: 'tool_call_id', inMessages: true, inner: 'length' };
  const short = withoutRefused(dialect, long);
  assert.equal(short?.callIdCharacters, 9);
  assert.equal(withoutRefused(short, long), undefined);
});

test('a stream always requests usage', () => {
  assert.deepEqual(sent({ stream: true })['stream_options'], { include_usage: true });
  assert.deepEqual(
    sent({ stream: true, stream_options: { include_usage: false, x: 1 } })['stream_options'],
    { include_usage: true, x: 1 },
  );
  const dialect = dialectAt('localhost', { continuousUsage: true });
  assert.deepEqual(sent({ stream: true }, { dialect })['stream_options'], {
    include_usage: true,
    continuous_usage_stats: true,
  });
});

test('reasoning is turned off for models with reasoning', () => {
  const off = { svc_parameters: { disable_thinking: true }, chat_template_kwargs: { a: 1 } };
  const asked = sent(off);
  assert.equal(asked['reasoning_effort'], 'none');
  assert.deepEqual(asked['chat_template_kwargs'], { a: 1, enable_thinking: false });
  assert.equal(sent(off, { abilities: NONE })['reasoning_effort'], undefined);
});

test('an unsupported effort becomes the nearest one', () => {
  const abilities: EngineTarget['abilities'] = {
    ...ALL,
    reasoningEfforts: ['low', 'medium', 'high'],
  };
  assert.equal(sent({ reasoning_effort: 'max' }, { abilities })['reasoning_effort'], 'high');
  assert.equal(
    sent({ reasoning: { effort: 'minimal' } }, { abilities })['reasoning_effort'],
    'low',
  );
  assert.equal(sent({ reasoning_effort: 'max' })['reasoning_effort'], 'max');
});

test("the default prompt precedes the caller's in one system message", () => {
  const systemPrompt = 'DEFAULT "x"';
  assert.deepEqual(sent({}, { systemPrompt })['messages'], [
    { role: 'system', content: systemPrompt },
    USER,
  ]);
  assert.deepEqual(
    sent({ messages: [{ role: 'system', content: 'mine' }, USER] }, { systemPrompt })['messages'],
    [{ role: 'system', content: `${systemPrompt}\n\nmine` }, USER],
  );
  assert.deepEqual(
    sent(
      { messages: [{ role: 'system', content: [{ type: 'text', text: 'mine' }] }] },
      { systemPrompt },
    )['messages'],
    [
      {
        role: 'system',
        content: [
          { type: 'text', text: systemPrompt },
          { type: 'text', text: 'mine' },
        ],
      },
    ],
  );
});

test('messages keep their bytes if other members change', () => {
  const text =
    '{"messages": [ {"role":"user","content":"caf\\u00e9 1.0"} ] , "model":"m", "max_tokens" : 3}';
  const request = parseChatRequest(Buffer.from(text), { serviceName: 'svc' });
  const body = engineRequest(request, TARGET).toString();
  assert.ok(body.includes('[ {"role":"user","content":"caf\\u00e9 1.0"} ]'), body);
});

test('the spliced body equals the serialized body', () => {
  const field = fc.dictionary(
    fc.constantFrom(
      'temperature',
      'user',
      'store',
      'vendor',
      'svc_parameters',
      'max_tokens',
      'stream',
      'seed',
      'metadata',
      'verbosity',
      'stop',
    ),
    fc.constantFrom<unknown>(null),
  );
  const extra = fc.record(
    {
      vendor: fc.jsonValue({ maxDepth: 2 }),
      temperature: fc.double({ min: 0, max: 2, noNaN: true }),
      stream: fc.boolean(),
      max_tokens: fc.integer({ min: -5, max: 100 }),
      content: fc.string({ unit: anyCharacter }),
    },
    { requiredKeys: ['content'] },
  );
  fc.assert(
    fc.property(field, extra, fc.boolean(), (nulls, { content, ...more }, hasPrompt) => {
      const request = parse({ ...nulls, ...more, messages: [{ role: 'user', content }] });
      const target = hasPrompt ? { ...TARGET, systemPrompt: 'P' } : TARGET;
      const expected = JSON.parse(JSON.stringify(engineFields(request, target)));
      assert.deepEqual(JSON.parse(engineRequest(request, target).toString()), expected);
    }),
  );
});
