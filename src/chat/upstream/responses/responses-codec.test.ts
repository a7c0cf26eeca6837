/** Chat members as a Responses request, and responses as completions and chunks. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  customCall,
  engineEvents,
  engineResponse,
  type EngineResponse,
  eventBytes,
  functionCall,
  message,
  reasoning,
} from '../../../../test/support/responses-engine.ts';
import { Fault } from '../../../core/faults.ts';
import type { JsonObject } from '../../../json/json-scan.ts';
import { responsesBody } from './chat-to-responses.ts';
import { ResponsesReader } from './responses-reader.ts';
import { completionOf } from './responses-to-chat.ts';

const FIRST = { own: undefined, refusal: undefined };
const INCLUDE = ['reasoning.encrypted_content'];
const ALWAYS = { include: INCLUDE, store: false };
const user = (content: unknown) => ({ type: 'message', role: 'user', content });
const hi = { messages: [{ role: 'user', content: 'Hi' }] };

const REQUESTS: readonly (readonly [name: string, chat: JsonObject, body: JsonObject])[] = [
  [
    'leading system messages become instructions, later ones stay in place',
    {
      messages: [
        { role: 'system', content: 'Rules' },
        { role: 'developer', content: [{ type: 'text', text: 'Facts' }] },
        { role: 'user', content: 'Hi' },
        { role: 'system', content: 'Later' },
      ],
    },
    {
      instructions: 'Rules\n\nFacts',
      input: [user('Hi'), { type: 'message', role: 'system', content: 'Later' }],
    },
  ],
  [
    'a turn with reasoning, text, calls and results becomes items',
    {
      messages: [
        { role: 'user', content: 'Add' },
        {
          role: 'assistant',
          content: 'I add',
          reasoning_content: 'Think',
          reasoning_details: [
            {
              type: 'reasoning.summary',
              summary: 'Think',
              id: 'rs_1',
              format: 'openai-responses-v1',
            },
            {
              type: 'reasoning.encrypted',
              data: 'gAAA',
              id: 'rs_1',
              format: 'openai-responses-v1',
            },
            { type: 'reasoning.text', text: 'x', signature: 's', format: 'anthropic-claude-v1' },
          ],
          tool_calls: [
            { id: 'a', type: 'function', function: { name: 'add', arguments: '{"a":1}' } },
            { id: 'b'.repeat(65), type: 'function', function: { name: 'add', arguments: '{}' } },
          ],
        },
        { role: 'tool', tool_call_id: 'a', content: [{ type: 'text', text: '3' }] },
        { role: 'tool', tool_call_id: 'b'.repeat(65), content: '4' },
      ],
    },
    {
      input: [
        user('Add'),
        {
          type: 'reasoning',
          id: 'rs_1',
          summary: [{ type: 'summary_text', text: 'Think' }],
          encrypted_content: 'gAAA',
        },
        { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'I add' }] },
        { type: 'function_call', call_id: 'a', name: 'add', arguments: '{"a":1}' },
        {
          type: 'function_call',
          call_id: 'call_74b128f30cf83de43ddf4aafc40c7b50',
          name: 'add',
          arguments: '{}',
        },
        { type: 'function_call_output', call_id: 'a', output: '3' },
        {
          type: 'function_call_output',
          call_id: 'call_74b128f30cf83de43ddf4aafc40c7b50',
          output: '4',
        },
      ],
    },
  ],
  [
    'parts of the user become input parts without cache marks',
    {
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'See', cache_control: { type: 'ephemeral' } },
            { type: 'image_url', image_url: { url: 'data:image/png;base64,AA', detail: 'low' } },
            { type: 'file', file: { file_data: 'data:application/pdf;base64,AA' } },
            { type: 'file', file: { file_data: 'https://example.com/a.pdf' } },
            {
              type: 'input_audio',
              input_audio: { data: 'AA', format: 'wav' },
              cache_control: null,
            },
          ],
        },
      ],
    },
    {
      input: [
        user([
          { type: 'input_text', text: 'See' },
          { type: 'input_image', image_url: 'data:image/png;base64,AA', detail: 'low' },
          { type: 'input_file', file_data: 'data:application/pdf;base64,AA', filename: 'file' },
          { type: 'input_file', file_url: 'https://example.com/a.pdf' },
          { type: 'input_audio', input_audio: { data: 'AA', format: 'wav' } },
        ]),
      ],
    },
  ],
  [
    'settings get the names of the protocol, and unknown ones pass',
    {
      ...hi,
      model: 'm',
      stream: true,
      stream_options: { include_usage: true, include_obfuscation: false },
      max_tokens: 5,
      max_completion_tokens: 5,
      reasoning_effort: 'low',
      reasoning: { summary: 'auto' },
      verbosity: 'high',
      logprobs: true,
      top_logprobs: 2,
      response_format: {
        type: 'json_schema',
        json_schema: { name: 'n', schema: {}, strict: true },
      },
      n: 1,
      stop: [],
      logit_bias: {},
      modalities: ['text'],
      seed: null,
      temperature: 0.5,
      top_k: 4,
    },
    {
      input: [user('Hi')],
      model: 'm',
      stream: true,
      stream_options: { include_obfuscation: false },
      max_output_tokens: 5,
      reasoning: { summary: 'auto', effort: 'low' },
      text: {
        format: { type: 'json_schema', name: 'n', schema: {}, strict: true },
        verbosity: 'high',
      },
      top_logprobs: 2,
      include: [...INCLUDE, 'message.output_text.logprobs'],
      temperature: 0.5,
      top_k: 4,
    },
  ],
  [
    'tools lose their wrapper and are not strict unless they say so',
    {
      ...hi,
      tools: [
        { type: 'function', function: { name: 'a', description: 'A', parameters: { x: 1 } } },
        { type: 'function', function: { name: 'b', strict: true, parameters: null } },
      ],
      tool_choice: { type: 'function', function: { name: 'a' } },
      parallel_tool_calls: false,
    },
    {
      input: [user('Hi')],
      tools: [
        { type: 'function', name: 'a', description: 'A', parameters: { x: 1 }, strict: false },
        {
          type: 'function',
          name: 'b',
          parameters: { type: 'object', properties: {} },
          strict: true,
        },
      ],
      tool_choice: { type: 'function', name: 'a' },
      parallel_tool_calls: false,
    },
  ],
];

for (const [name, chat, body] of REQUESTS) {
  test(name, () => assert.deepEqual(responsesBody(chat, FIRST), { ...ALWAYS, ...body }));
}

for (const member of [
  { stop: ['END'] },
  { n: 2 },
  { seed: 7 },
  { logit_bias: { 50: 1 } },
  { audio: { voice: 'a' } },
  { modalities: ['text', 'audio'] },
]) {
  const [name = ''] = Object.keys(member);
  test(`${name} is rejected, because the protocol has no equivalent`, () => {
    const isNamed = (error: unknown) => error instanceof Fault && error.message.includes(name);
    assert.throws(() => responsesBody({ ...hi, ...member }, FIRST), isNamed);
  });
}

const CITED = {
  type: 'url_citation',
  url: 'https://a.example',
  title: 'A',
  start_index: 0,
  end_index: 2,
};

const RESPONSES: readonly (readonly [name: string, given: EngineResponse, choice: JsonObject])[] = [
  [
    'reasoning, text and parallel calls become one message',
    {
      output: [
        reasoning('rs_1', ['First', 'Second'], 'gAAA'),
        message('msg_1', 'Hello wörld 🌍'),
        reasoning('rs_2', ['Third'], 'gBBB'),
        functionCall('1', 'add', { a: 1, text: 'x"y' }),
        functionCall('2', 'sub', {}),
      ],
    },
    {
      message: {
        content: 'Hello wörld 🌍',
        reasoning_content: 'First\n\nSecond\n\nThird',
        reasoning_details: [
          {
            type: 'reasoning.summary',
            summary: 'First',
            id: 'rs_1',
            format: 'openai-responses-v1',
            index: 0,
          },
          {
            type: 'reasoning.summary',
            summary: 'Second',
            id: 'rs_1',
            format: 'openai-responses-v1',
            index: 1,
          },
          {
            type: 'reasoning.encrypted',
            data: 'gAAA',
            id: 'rs_1',
            format: 'openai-responses-v1',
            index: 2,
          },
          {
            type: 'reasoning.summary',
            summary: 'Third',
            id: 'rs_2',
            format: 'openai-responses-v1',
            index: 3,
          },
          {
            type: 'reasoning.encrypted',
            data: 'gBBB',
            id: 'rs_2',
            format: 'openai-responses-v1',
            index: 4,
          },
        ],
        tool_calls: [
          {
            id: 'call_1',
            type: 'function',
            function: { name: 'add', arguments: '{"a":1,"text":"x\\"y"}' },
          },
          { id: 'call_2', type: 'function', function: { name: 'sub', arguments: '{}' } },
        ],
      },
      finish_reason: 'stop',
    },
  ],
  [
    'raw reasoning text and a custom tool call are read',
    {
      output: [
        {
          id: 'rs_1',
          type: 'reasoning',
          summary: [],
          content: [{ type: 'reasoning_text', text: 'Raw' }],
        },
        customCall('1', 'apply_patch', '*** Begin Patch\n"x"'),
      ],
    },
    {
      message: {
        reasoning_content: 'Raw',
        reasoning_details: [
          {
            type: 'reasoning.text',
            text: 'Raw',
            id: 'rs_1',
            format: 'openai-responses-v1',
            index: 0,
          },
        ],
        tool_calls: [
          {
            id: 'call_1',
            type: 'function',
            function: { name: 'apply_patch', arguments: '{"input":"*** Begin Patch\\n\\"x\\""}' },
          },
        ],
      },
      finish_reason: 'stop',
    },
  ],
  [
    'citations of a later part count from the beginning of the content',
    { output: [message('msg_1', 'abc'), message('msg_2', 'de', [CITED])] },
    {
      message: {
        content: 'abcde',
        annotations: [
          {
            type: 'url_citation',
            url_citation: { url: 'https://a.example', title: 'A', start_index: 3, end_index: 5 },
          },
        ],
      },
      finish_reason: 'stop',
    },
  ],
  [
    'a refusal stays a refusal',
    {
      output: [
        {
          id: 'm',
          type: 'message',
          role: 'assistant',
          content: [{ type: 'refusal', refusal: 'No' }],
        },
      ],
    },
    { message: { refusal: 'No' }, finish_reason: 'stop' },
  ],
  [
    'an output that reached its limit ends by length',
    {
      output: [message('m', 'Hel')],
      status: 'incomplete',
      more: { incomplete_details: { reason: 'max_output_tokens' } },
    },
    { message: { content: 'Hel' }, finish_reason: 'length' },
  ],
  [
    'a filtered output ends by content_filter',
    {
      output: [message('m', 'Hel')],
      status: 'incomplete',
      more: { incomplete_details: { reason: 'content_filter' } },
    },
    { message: { content: 'Hel' }, finish_reason: 'content_filter' },
  ],
];

interface Folded {
  readonly message: Record<string, unknown>;
  finish_reason: unknown;
  usage: unknown;
  error: unknown;
}

function choicesOf(response: JsonObject): readonly [JsonObject] {
  const { choices } = completionOf(response) ?? {};
  return choices as readonly [JsonObject]; // a completion has one choice
}

/** The chunks of a stream as one choice. */
function folded(bytes: string): Folded {
  const all: Folded = { message: {}, finish_reason: null, usage: undefined, error: undefined };
  const append = (name: string, value: unknown) => {
    const before = all.message[name];
    all.message[name] = typeof before === 'string' ? before + String(value) : value;
  };
  for (const [, json = ''] of bytes.matchAll(/^data: (\{.*\})$/gm)) {
    const { choices = [], usage, error } = JSON.parse(json);
    if (usage !== undefined) all.usage = usage;
    if (error !== undefined) all.error = error;
    for (const { delta, finish_reason } of choices) {
      for (const [name, value] of Object.entries(delta)) {
        if (name === 'tool_calls') {
          const list = (all.message[name] ??= []) as { function: Record<string, unknown> }[];
          for (const { index, ...call } of value as (JsonObject & { index: number })[]) {
            const made = call['function'] as JsonObject;
            const known = list[index];
            if (known === undefined) list[index] = { ...call, function: { ...made } };
            else
              known.function['arguments'] =
                String(known.function['arguments']) + String(made['arguments']);
          }
        } else if (Array.isArray(value)) {
          all.message[name] = [...((all.message[name] ?? []) as unknown[]), ...value];
        } else append(name, value);
      }
      all.finish_reason ??= finish_reason;
    }
  }
  return all;
}

/** As `folded`, from a stream that arrives in pieces of this size. */
function streamed(text: string, size = text.length): Folded {
  const chunks = new ResponsesReader();
  const bytes = Buffer.from(text);
  let out = '';
  for (let at = 0; at < bytes.length; at += size) {
    out += chunks.push(bytes.subarray(at, at + size)).toString();
  }
  return folded(out);
}

for (const [name, given, choice] of RESPONSES) {
  test(`${name}, streaming or not`, () => {
    const response = engineResponse(given);
    const [{ message: read, finish_reason }] = choicesOf(response) as unknown as [Folded];
    const wanted = { message: { role: 'assistant', ...(choice['message'] as object) } };
    assert.partialDeepStrictEqual({ message: read, finish_reason }, { ...choice, ...wanted });
    const events = engineEvents(given);
    const small = events.filter(({ type }) => !String(type).endsWith('.delta'));
    for (const [list, size] of [
      [events, 1],
      [events, 50],
      // Some engines send texts only with their items, or all of them with the last event.
      [small, undefined],
      [events.filter(({ response: whole }) => whole !== undefined), undefined],
    ] as const) {
      const fold = streamed(eventBytes(list), size);
      assert.deepEqual(fold.usage, response.usage);
      assert.equal(fold.finish_reason, finish_reason);
      const content = read['content'] ?? '';
      const shown: Record<string, unknown> = { ...read, content };
      if (list !== events) delete shown['annotations'];
      if (list !== events) delete fold.message['annotations'];
      assert.deepEqual(fold.message, shown);
    }
  });
}

test('a failed response is an interrupted completion, or an error in a stream', () => {
  const error = { code: 'server_error', message: 'Down' };
  const given = { output: [], status: 'failed', more: { error } };
  const [choice] = choicesOf(engineResponse(given));
  assert.equal(choice['finish_reason'], 'error');
  assert.partialDeepStrictEqual(streamed(eventBytes(engineEvents(given))).error, error);
  for (const event of [
    { type: 'error', ...error },
    { type: 'error', error },
  ]) {
    assert.partialDeepStrictEqual(streamed(eventBytes([event])).error, error);
  }
});

test('an event that is nested too deeply to be written is an error in a stream', () => {
  const deep = '{"1":'.repeat(20_000) + '1' + '}'.repeat(20_000);
  const item = `{"type":"custom_tool_call","call_id":"c","name":"n","input":${deep}}`;
  const event = `{"type":"response.output_item.added","output_index":0,"item":${item}}`;
  const chunks = new ResponsesReader().push(Buffer.from(`data: ${event}\n\n`)).toString();
  assert.match(chunks, /^data: \{"error":.*"broken_stream"/);
});

test('what is no response, or has not ended, is no completion', () => {
  assert.equal(completionOf({ choices: [] }), undefined);
  assert.equal(completionOf(engineResponse({ output: [], status: 'in_progress' })), undefined);
  const cut = eventBytes(engineEvents({ output: [message('m', 'Hello')] }).slice(0, 6));
  assert.equal(streamed(cut).finish_reason, null);
  assert.partialDeepStrictEqual(streamed('data: {"type":\n\n').error, { code: 'broken_stream' });
});

test('reasoning of a response returns to the engine as the same items', () => {
  const output = [
    reasoning('rs_1', ['A', 'B'], 'gAAA'),
    reasoning('rs_2', [], 'gBBB'),
    message('m', 'x'),
  ];
  const [choice] = choicesOf(engineResponse({ output }));
  const { input } = responsesBody({ messages: [choice['message']] }, FIRST) ?? {};
  assert.deepEqual((input as unknown[]).slice(0, 2), output.slice(0, 2));
});
