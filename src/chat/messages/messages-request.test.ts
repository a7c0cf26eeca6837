import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Fault } from '../../core/faults.ts';
import type { JsonObject } from '../../json/json-scan.ts';
import { MessagePass } from '../upstream/anthropic/message-pass.ts';
import { localDialect } from '../wire/engine-dialect.ts';
import { messageError } from './message-errors.ts';
import { type MessagesOptions, readMessagesRequest } from './messages-request.ts';

const OPTIONS: MessagesOptions = {
  canSearch: true,
  openSealed: (signature) => (signature === 'ours' ? 'I thought' : undefined),
  sessionId: undefined,
  serviceName: 'svc',
};
const USER = { role: 'user', content: 'Hi' };
const HEAD = { model: 'm', max_tokens: 100, messages: [USER] };

function translated(more: JsonObject, options: Partial<MessagesOptions> = {}) {
  return readMessagesRequest({ ...HEAD, ...more }, { ...OPTIONS, ...options });
}

function chat(more: JsonObject, options: Partial<MessagesOptions> = {}): JsonObject {
  const given = Object.entries(translated(more, options).chat);
  return Object.fromEntries(given.filter(([, value]) => value !== undefined));
}

function messages(...given: readonly unknown[]): unknown {
  return chat({ messages: given })['messages'];
}

function refusal(more: JsonObject, options: Partial<MessagesOptions> = {}): Fault {
  try {
    translated(more, options);
  } catch (error) {
    if (error instanceof Fault) return error;
    throw error;
  }
  throw new Error('Nothing was refused');
}

describe('a Messages request', () => {
  test('becomes a chat request without unsupported fields', () => {
    const given = {
      stream: true,
      temperature: 0.5,
      top_p: 0.9,
      top_k: 20,
      stop_sequences: ['a', 'b', 'c', 'd', 'e'],
      metadata: { user_id: 'anna' },
      thinking: { type: 'adaptive' },
      service_tier: 'auto',
      context_management: { edits: [] },
      mcp_servers: [],
      container: null,
      unheard_of: 1,
    };
    assert.deepEqual(chat(given), {
      model: 'm',
      messages: [{ role: 'user', content: 'Hi' }],
      stream: true,
      max_completion_tokens: 100,
      temperature: 0.5,
      top_p: 0.9,
      top_k: 20,
      stop: ['a', 'b', 'c', 'd', 'e'],
      prompt_cache_key: 'anna',
      metadata: { user_id: 'anna' },
      svc_parameters: {},
    });
  });

  test("takes its cache key from the agent's header, else from the user id", () => {
    const metadata = { user_id: 'u'.repeat(2_000), project: 'x' };
    const made = chat({ metadata }, { sessionId: 'session-1' });
    assert.equal(made['prompt_cache_key'], 'session-1');
    // A tag has at most 512 bytes; what is longer is none.
    assert.deepEqual(made['metadata'], { project: 'x' });
    assert.equal(String(chat({ metadata })['prompt_cache_key']).length, 256);
  });

  test('joins system texts, without the billing header block', () => {
    const system = [
      { type: 'text', text: 'x-anthropic-billing-header: cc_version=1; cch=7;' },
      { type: 'text', text: 'You are an agent.', cache_control: { type: 'ephemeral' } },
      { type: 'text', text: 'Be brief.' },
    ];
    const given = [
      { role: 'user', content: [{ type: 'text', text: 'Hi' }] },
      { role: 'system', content: 'Tools: many.' },
      { role: 'assistant', content: 'Yes?' },
      { role: 'system', content: [{ type: 'text', text: 'Late.' }] },
      { role: 'user', content: 'Go' },
    ];
    assert.deepEqual(chat({ system, messages: given })['messages'], [
      { role: 'system', content: 'You are an agent.\n\nBe brief.\n\nTools: many.' },
      { role: 'user', content: 'Hi' },
      { role: 'assistant', content: 'Yes?' },
      { role: 'user', content: '<system-reminder>\nLate.\n</system-reminder>\n\nGo' },
    ]);
  });

  test('keeps marks for a prompt cache on texts and calls of the assistant, for engines that read them', () => {
    const mark = { cache_control: { type: 'ephemeral', ttl: '1h' } };
    const content = [
      { type: 'text', text: 'First.' },
      { type: 'text', text: 'Looking.', ...mark },
      { type: 'tool_use', id: 't1', name: 'read', input: {}, ...mark },
    ];
    const { markedMessages } = translated({ messages: [USER, { role: 'assistant', content }] });
    const call = { id: 't1', type: 'function', function: { name: 'read', arguments: '{}' } };
    assert.deepEqual(markedMessages?.[1], {
      role: 'assistant',
      content: content.slice(0, 2),
      tool_calls: [{ ...call, ...mark }],
    });
    const [, plain] = messages(USER, { role: 'assistant', content }) as readonly unknown[];
    assert.deepEqual(plain, {
      role: 'assistant',
      content: 'First.\n\nLooking.',
      tool_calls: [call],
    });
  });

  test('keeps calls, results, images of results and the reasoning of the turn', () => {
    const image = { type: 'base64', media_type: 'image/png', data: 'iVBO' };
    const answer = [
      { type: 'thinking', thinking: 'changed by whoever', signature: 'ours' },
      { type: 'thinking', thinking: 'foreign', signature: 'theirs' },
      { type: 'redacted_thinking', data: 'x' },
      { type: 'text', text: 'Looking.' },
      { type: 'tool_use', id: 't1', name: 'read', input: { path: 'a' } },
      { type: 'tool_use', id: 't2', name: 'look', input: {} },
      { type: 'tool_use', id: 't3', name: 'none', input: {} },
      { type: 'server_tool_use', id: 's1', name: 'web_search', input: {} },
      { type: 'web_search_tool_result', tool_use_id: 's1', content: [] },
    ];
    const results = [
      { type: 'tool_result', tool_use_id: 't2', content: [{ type: 'image', source: image }] },
      {
        type: 'tool_result',
        tool_use_id: 't1',
        is_error: true,
        content: [{ type: 'text', text: 'not found' }],
      },
      { type: 'tool_result', tool_use_id: 'unknown', content: 'x' },
      { type: 'text', text: 'And?' },
    ];
    const found = messages(
      USER,
      { role: 'assistant', content: answer },
      { role: 'user', content: results.slice(0, 3) },
    );
    const call = (id: string, name: string, text: string) => ({
      id,
      type: 'function',
      function: { name, arguments: text },
    });
    assert.deepEqual(found, [
      USER,
      {
        role: 'assistant',
        content: 'Looking.',
        reasoning_content: 'I thought',
        tool_calls: [
          call('t1', 'read', '{"path":"a"}'),
          call('t2', 'look', '{}'),
          call('t3', 'none', '{}'),
        ],
      },
      { role: 'tool', tool_call_id: 't1', content: 'Error: not found' },
      { role: 'tool', tool_call_id: 't2', content: '(see the next message)' },
      { role: 'tool', tool_call_id: 't3', content: '(no output)' },
      {
        role: 'user',
        content: [{ type: 'image_url', image_url: { url: 'data:image/png;base64,iVBO' } }],
      },
    ]);
    const next = messages(
      USER,
      { role: 'assistant', content: answer },
      { role: 'user', content: results },
    );
    assert.ok(!JSON.stringify(next).includes('I thought'), 'another turn has begun');
  });

  test('converts images, files and search results to content parts', () => {
    const content = [
      { type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } },
      {
        type: 'document',
        source: { type: 'base64', media_type: 'application/pdf', data: 'JVBE' },
        title: 'a.pdf',
      },
      { type: 'document', source: { type: 'url', url: 'https://example.com/b.pdf' } },
      {
        type: 'document',
        source: { type: 'text', media_type: 'text/plain', data: 'Body' },
        title: 'T',
        context: 'C',
      },
      { type: 'document', source: { type: 'content', content: [{ type: 'text', text: 'Part' }] } },
      {
        type: 'search_result',
        source: 'https://example.com',
        title: 'S',
        content: [{ type: 'text', text: 'Found' }],
      },
      { type: 'container_upload', file_id: 'f' },
      { type: 'text', text: 'Well?' },
    ];
    assert.deepEqual(messages({ role: 'user', content }), [
      {
        role: 'user',
        content: [
          { type: 'image_url', image_url: { url: 'https://example.com/a.png' } },
          {
            type: 'file',
            file: { file_data: 'data:application/pdf;base64,JVBE', filename: 'a.pdf' },
          },
          { type: 'file', file: { file_data: 'https://example.com/b.pdf' } },
          { type: 'text', text: 'T\n\nC\n\nBody' },
          { type: 'text', text: 'Part' },
          { type: 'text', text: 'S\nhttps://example.com\nFound' },
          { type: 'text', text: 'Well?' },
        ],
      },
    ]);
    const stored = { type: 'image', source: { type: 'file', file_id: 'f' } };
    const { options } = refusal({ messages: [{ role: 'user', content: [stored] }] });
    assert.match(JSON.stringify(options.fields), /"path":\["messages",0,"content",0,"source"\]/);
  });

  test('offers deferred tools once they were referenced or called', () => {
    const tool = (name: string, defer_loading?: boolean) => ({
      name,
      input_schema: { type: 'object' },
      ...(defer_loading === undefined ? {} : { defer_loading }),
    });
    const tools = [tool('read'), tool('found', true), tool('called', true), tool('hidden', true)];
    const found = { type: 'tool_reference', tool_name: 'found' };
    const history = [
      USER,
      {
        role: 'assistant',
        content: [
          { type: 'tool_use', id: 't1', name: 'search', input: {} },
          { type: 'tool_use', id: 't2', name: 'called', input: {} },
        ],
      },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't1', content: [found] }] },
    ];
    const names = (made: JsonObject) =>
      (made['tools'] as { function: { name: string } }[]).map((one) => one.function.name);
    assert.deepEqual(names(chat({ tools })), ['read']);
    assert.deepEqual(names(chat({ tools, messages: history })), ['read', 'found', 'called']);
    assert.deepEqual(names(chat({ tools, tool_choice: { type: 'tool', name: 'hidden' } })), [
      'read',
      'hidden',
    ]);
    assert.match(
      JSON.stringify(chat({ tools, messages: history })),
      /The tool found is available now/,
    );
  });

  const function_ = {
    name: 'f',
    description: 'Does',
    input_schema: { type: 'object' },
    strict: true,
  };
  const offered = {
    type: 'function',
    function: { name: 'f', description: 'Does', parameters: { type: 'object' } },
  };
  const search = { type: 'web_search_20250305', name: 'web_search', max_uses: 2 };
  const searching = (mode: string) => ({ enable_web_search: mode, enable_web_citations: true });
  const choices: readonly (readonly [string, JsonObject, JsonObject])[] = [
    ['auto', { tools: [function_] }, { tools: [offered] }],
    [
      'nulls for absent members',
      {
        tools: [
          { ...function_, type: null },
          { type: 'bash_20250124', name: null },
        ],
        tool_choice: { type: 'auto', name: null, disable_parallel_tool_use: null },
      },
      { tools: [offered], tool_choice: 'auto' },
    ],
    ['none of a kind known here', { tools: [{ type: 'bash_20250124', name: 'bash' }] }, {}],
    [
      'any',
      { tools: [function_], tool_choice: { type: 'any' } },
      { tools: [offered], tool_choice: 'required' },
    ],
    [
      'one after the other',
      { tools: [function_], tool_choice: { type: 'auto', disable_parallel_tool_use: true } },
      { tools: [offered], tool_choice: 'auto', parallel_tool_calls: false },
    ],
    [
      'one by its name',
      { tools: [function_], tool_choice: { type: 'tool', name: 'f' } },
      { tools: [offered], tool_choice: { type: 'function', function: { name: 'f' } } },
    ],
    ['a search', { tools: [search] }, { svc_parameters: searching('auto') }],
    [
      'a search among others',
      { tools: [function_, search] },
      { tools: [offered], svc_parameters: searching('auto') },
    ],
    [
      'a search that must be',
      { tools: [search], tool_choice: { type: 'tool', name: 'web_search' } },
      { svc_parameters: searching('on') },
    ],
    [
      'a search, by any of one',
      { tools: [search], tool_choice: { type: 'any' } },
      { svc_parameters: searching('on') },
    ],
    ['a search that must not be', { tools: [search], tool_choice: { type: 'none' } }, {}],
    [
      'no call at all',
      { tools: [function_, search], tool_choice: { type: 'none' } },
      { tools: [offered], tool_choice: 'none' },
    ],
  ];
  for (const [name, given, wanted] of choices) {
    test(`has tools: ${name}`, () => {
      const {
        model: _m,
        messages: _l,
        stream: _s,
        stop: _o,
        metadata: _d,
        ...made
      } = chat({
        ...given,
        thinking: { type: 'enabled' },
      });
      assert.deepEqual(made, { max_completion_tokens: 100, svc_parameters: {}, ...wanted });
    });
  }

  test('drops a search that this server lacks, and rejects a choice that requires it', () => {
    assert.deepEqual(
      chat({ tools: [search], thinking: { type: 'enabled' } }, { canSearch: false })[
        'svc_parameters'
      ],
      {},
    );
    const demanded = { tools: [search], tool_choice: { type: 'tool', name: 'web_search' } };
    assert.equal(refusal(demanded, { canSearch: false }).code, 'INVALID_REQUEST');
    const unknown = { tools: [function_], tool_choice: { type: 'tool', name: 'g' } };
    assert.equal(refusal(unknown).code, 'INVALID_REQUEST');
    assert.equal(translated({ tools: [search] }).maxSearches, 2);
  });

  test('shortens long tool names and maps them back', () => {
    const name = `mcp__${'server_'.repeat(12)}read`;
    const { chat: made, toolNames } = translated({ tools: [{ name, input_schema: {} }] });
    const [tool] = made['tools'] as { function: { name: string } }[];
    const shown = tool?.function.name ?? '';
    assert.ok(shown.length <= 64, shown);
    assert.equal(toolNames.get(shown), name);
  });

  const thoughts: readonly (readonly [string, JsonObject, unknown, string])[] = [
    ['nothing', {}, 'none', 'hidden'],
    ['disabled', { thinking: { type: 'disabled' } }, 'none', 'hidden'],
    ['between tools', { thinking: { type: 'between_tools' } }, 'none', 'hidden'],
    ['adaptive', { thinking: { type: 'adaptive' } }, undefined, 'whole'],
    ['omitted', { thinking: { type: 'adaptive', display: 'omitted' } }, undefined, 'signed'],
    ['a small budget', { thinking: { type: 'enabled', budget_tokens: 4_095 } }, 'low', 'whole'],
    ['a budget', { thinking: { type: 'enabled', budget_tokens: 4_096 } }, 'medium', 'whole'],
    ['a large budget', { thinking: { type: 'enabled', budget_tokens: 16_384 } }, 'high', 'whole'],
    [
      'an effort',
      { thinking: { type: 'adaptive' }, output_config: { effort: 'max' } },
      'max',
      'whole',
    ],
    ['an effort alone', { output_config: { effort: 'low' } }, 'low', 'hidden'],
    [
      'an effort of nothing known',
      { thinking: { type: 'adaptive' }, output_config: { effort: 'wild' } },
      undefined,
      'whole',
    ],
  ];
  for (const [name, given, effort, shown] of thoughts) {
    test(`asks for thinking: ${name}`, () => {
      const { chat: made, thinking } = translated(given);
      assert.deepEqual([made['reasoning_effort'], thinking], [effort, shown]);
    });
  }

  test('accepts an output schema under either name', () => {
    const format = { type: 'json_schema', schema: { type: 'object' } };
    const wanted = {
      type: 'json_schema',
      json_schema: { name: 'answer', schema: { type: 'object' }, strict: true },
    };
    assert.deepEqual(chat({ output_config: { format } })['response_format'], wanted);
    assert.deepEqual(chat({ output_format: format })['response_format'], wanted);
  });

  test('gives explicit service parameters priority', () => {
    const svc_parameters = { enable_web_search: 'off', disable_thinking: true };
    assert.deepEqual(chat({ tools: [search], svc_parameters })['svc_parameters'], {
      ...svc_parameters,
      enable_web_citations: true,
    });
    const unset = { enable_web_search: null, disable_thinking: true };
    assert.deepEqual(chat({ tools: [search], svc_parameters: unset })['svc_parameters'], {
      ...searching('auto'),
      disable_thinking: true,
    });
  });

  test('rejects `thread` before any other validation', () => {
    const fault = refusal({ thread: { type: 'create' }, messages: 'wrong' });
    assert.deepEqual(messageError(fault, { requestId: 'r' }), {
      type: 'error',
      error: {
        type: 'invalid_request_error',
        message: 'thread is not supported here; send the whole conversation in messages',
        details: { error_code: 'thread_unsupported_request', unsupported: ['thread'] },
      },
      request_id: 'r',
      code: 'INVALID_REQUEST',
    });
  });

  test('is passed on without the service parameters under the name of the service', () => {
    const own = { svc_parameters: {}, acme_parameters: { include_venice_system_prompt: false } };
    const body = { model: 'atlas', max_tokens: 100, messages: [USER], ...own };
    const bytes = Buffer.from(JSON.stringify(body));
    const dialect = localDialect('none');
    const target = { model: 'claude', dialect, maxOutputTokens: 100, refusal: undefined };
    const options = { betas: undefined, contextTokens: 200_000, serviceName: 'acme' };
    const passed = new MessagePass(bytes, body, options).writeRequest(target);
    assert.deepEqual(JSON.parse(String(passed)), {
      model: 'claude',
      max_tokens: 100,
      messages: [USER],
    });
  });

  test('that only fills a prompt cache is rejected', () => {
    assert.match(refusal({ max_tokens: 0 }).message, /^max_tokens: .+ without a completion/);
    assert.equal(chat({ max_tokens: null })['max_completion_tokens'], null);
  });

  test('is rejected with the path of the invalid member', () => {
    for (const wrong of [
      { messages: [] },
      { messages: 'Hi' },
      { model: 1 },
      { messages: [{ role: 'tool', content: 'x' }] },
      { tool_choice: { type: 'some' } },
      { temperature: 3 },
    ]) {
      const [path] = Object.keys(wrong);
      const { code, message } = refusal(wrong);
      assert.equal(code, 'INVALID_REQUEST');
      assert.match(message, new RegExp(path ?? ''));
    }
  });
});
