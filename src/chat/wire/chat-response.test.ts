/** Non-streaming responses of several engines, and usage in every format. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  readChatResponse,
  writeChatResponse,
  type ResponseEnd,
  type ResponseFrame,
} from './chat-response.ts';
import { stripThinkTags, ThinkStripper } from './think-tags.ts';
import { SVC_PARAMETER_DEFAULTS } from './svc-parameters.ts';
import { chatUsage, chatUsageText, readUsage } from '../../engines/usage.ts';

const KEEP = {
  stripThinkTags: false,
  dropReasoning: false,
  choiceCount: 4,
  maxOutputTokens: 1_000,
};
const USAGE = {
  promptTokens: 5,
  completionTokens: 3,
  cachedTokens: 2,
  cacheWriteTokens: 1,
  reasoningTokens: 1,
};
const FRAME: ResponseFrame & ResponseEnd = {
  id: 'chatcmpl-x',
  model: 'shown',
  createdS: 7,
  usage: USAGE,
  cost: { usd: 0.5, diem: 0.25 },
  serviceName: 'svc',
  parameters: SVC_PARAMETER_DEFAULTS,
  citations: [],
};

function answer(message: object, finish: unknown = 'stop', more: object = {}): Buffer {
  const choices = [{ index: 0, message, logprobs: null, finish_reason: finish, stop_reason: null }];
  return Buffer.from(
    JSON.stringify({
      id: 'up',
      object: 'chat.completion',
      created: 9,
      model: 'up',
      choices,
      ...more,
    }),
  );
}

function shaped(
  bytes: Buffer,
  options = KEEP,
  frame = FRAME,
): Record<string, unknown> & {
  choices: { message: Record<string, unknown>; finish_reason: string }[];
} {
  return JSON.parse(written(bytes, options, frame));
}

/** The caller's bytes as a text. */
function written(bytes: Buffer, options = KEEP, frame = FRAME): string {
  const body = writeChatResponse(readChatResponse(bytes, options), frame, frame);
  return (typeof body === 'string' ? Buffer.from(body, 'latin1') : body).toString();
}

test("a response has the server's id, model, usage, cost and parameters", () => {
  const body = shaped(
    answer({ role: 'assistant', content: 'Hi', reasoning_content: null, tool_calls: [] }, 'stop', {
      usage: { prompt_tokens: 5, completion_tokens: 3 },
      system_fingerprint: 'fp',
    }),
  );
  const { choices, svc_parameters, ...rest } = body;
  assert.deepEqual(rest, {
    id: 'chatcmpl-x',
    object: 'chat.completion',
    created: 7,
    model: 'shown',
    system_fingerprint: 'fp',
    usage: {
      prompt_tokens: 5,
      completion_tokens: 3,
      total_tokens: 8,
      prompt_tokens_details: { cached_tokens: 2, cache_creation_input_tokens: 1 },
      completion_tokens_details: { reasoning_tokens: 1 },
    },
    cost: { usd: 0.5, diem: 0.25 },
    prompt_logprobs: null,
  });
  assert.deepEqual(choices[0]?.message, {
    role: 'assistant',
    content: 'Hi',
    reasoning_content: null,
    tool_calls: [],
  });
  assert.deepEqual(svc_parameters, { ...SVC_PARAMETER_DEFAULTS, web_search_citations: [] });
});

test('content parts become text, and thinking parts become reasoning', () => {
  const content = [
    { type: 'thinking', thinking: [{ type: 'text', text: 'Two and ' }] },
    { type: 'thinking', thinking: 'two' },
    { type: 'text', text: 'Four' },
    { type: 'reference', reference_ids: [1] },
    '.',
  ];
  const { choices } = shaped(answer({ role: 'assistant', content }));
  assert.deepEqual(choices[0]?.message, {
    role: 'assistant',
    content: 'Four.',
    reasoning_content: 'Two and two',
    tool_calls: [],
    refusal: null,
  });
});

test('unchanged choices keep their bytes', () => {
  const text =
    '{"choices":[{"index":0,"message":{"role":"assistant","content":"caf\\u00e9","reasoning_content":null,"tool_calls":[]},"logprobs":{"x":-1.50},"finish_reason":"stop","stop_reason":null}],"id":"u","model":"u"}';
  const result = written(Buffer.from(text));
  assert.ok(result.includes('"caf\\u00e9"') && result.includes('-1.50'), result);
  assert.equal(JSON.parse(result).created, 7);
});

test('short and long responses are written alike, with any characters', () => {
  const fitting = { role: 'assistant', reasoning_content: null, tool_calls: [] };
  const safe = { index: 0, logprobs: null, finish_reason: 'stop', stop_reason: null };
  const frames = [FRAME, { ...FRAME, model: 'modèle 模型' }];
  for (const content of ['café \\ "quoted"', '你好 🌍', '{"a":[1,"}"]}'])
    for (const frame of frames) {
      const given = {
        clé: [content],
        id: content,
        choices: [{ ...safe, message: { ...fitting, content } }],
      };
      const short = Buffer.from(JSON.stringify(given, null, 1));
      // The bodies differ only in white space.
      const long = Buffer.from(`${' '.repeat(9_000)}${short.toString()}`);
      assert.equal(written(short, KEEP, frame), written(long, KEEP, frame));
      assert.equal(shaped(short, KEEP, frame).choices[0]?.message['content'], content);
      assert.deepEqual(shaped(short, KEEP, frame)['clé'], [content]);
      assert.equal(shaped(short, KEEP, frame)['model'], frame.model);
    }
});

test('a response has all members that the SDKs read', () => {
  const call = { function: { name: 'f', arguments: { a: 1 } } };
  const body = shaped(answer({ content: null, reasoning: 'why', tool_calls: [call] }, 'stop'));
  assert.deepEqual(body.choices[0]?.message, {
    role: 'assistant',
    content: null,
    reasoning_content: 'why',
    tool_calls: [{ function: { name: 'f', arguments: '{"a":1}' }, id: 'call_0', type: 'function' }],
    refusal: null,
  });
  const { choices } = shaped(answer({ content: null, refusal: 'No' }));
  assert.equal(choices[0]?.message['refusal'], 'No');
  assert.equal(body.choices[0]?.finish_reason, 'tool_calls');
  assert.equal(
    shaped(answer({ content: null, tool_calls: [call] }, 'length')).choices[0]?.finish_reason,
    'length',
  );
  assert.equal(shaped(answer({ content: 'x' }, 'end_turn')).choices[0]?.finish_reason, 'stop');
  assert.equal(shaped(answer({ content: 'x' }, null)).choices[0]?.finish_reason, 'stop');
});

test('log probabilities have all members that the SDKs require', () => {
  const shown = (logprobs: unknown): unknown => {
    const message = { role: 'assistant', content: 'a', reasoning_content: null, tool_calls: [] };
    const choices = [{ index: 0, message, logprobs, finish_reason: 'stop', stop_reason: null }];
    return JSON.parse(written(Buffer.from(JSON.stringify({ choices })))).choices[0].logprobs;
  };
  const short = { token: 'a', logprob: -0.1 };
  const whole = { ...short, bytes: null, top_logprobs: [] };
  assert.deepEqual(shown({ content: [short] }), { content: [whole], refusal: null });
  for (const kept of [null, { content: null }, { tokens: ['a'] }, { content: [], refusal: [] }]) {
    assert.deepEqual(shown(kept), kept);
  }
});

test('thinking is stripped and dropped as requested', () => {
  const bytes = answer({ content: '<think>a</think>\n\nb', reasoning_content: 'r' });
  assert.equal(
    shaped(bytes, { ...KEEP, stripThinkTags: true }).choices[0]?.message['content'],
    'b',
  );
  assert.equal(
    shaped(bytes, { ...KEEP, stripThinkTags: true, dropReasoning: true }).choices[0]?.message[
      'reasoning_content'
    ],
    null,
  );
  assert.equal(shaped(bytes).choices[0]?.message['content'], '<think>a</think>\n\nb');
});

test('search documents are the first tool call', () => {
  const documents = [
    { id: '1', title: 'T', url: 'https://e.com', snippet: 's', published_at: null },
  ];
  const body = shaped(answer({ role: 'assistant', content: 'x' }), KEEP, { ...FRAME, documents });
  assert.deepEqual(body.choices[0]?.message['tool_calls'], [
    {
      id: 'web_search_call',
      type: 'function',
      function: { name: 'svc_web_search_documents', arguments: JSON.stringify({ documents }) },
    },
  ]);
  assert.equal(body.choices[0]?.finish_reason, 'tool_calls');
});

test('an invalid response is INFERENCE_FAILED', () => {
  for (const text of [
    '',
    '<html>',
    '[]',
    '{}',
    '{"choices":[{}]}',
    '{"choices":[1]}',
    '{"error":{"message":"x"}}',
  ]) {
    assert.throws(
      () => readChatResponse(Buffer.from(text), KEEP),
      { code: 'INFERENCE_FAILED' },
      text,
    );
  }
});

test('the tally counts the output', () => {
  const full = readChatResponse(
    answer({
      content: 'äb',
      reasoning: 'r',
      tool_calls: [{ function: { name: 'f', arguments: '{}' } }],
    }),
    KEEP,
  );
  assert.deepEqual(full.tally, { contentBytes: 3, reasoningBytes: 1, toolBytes: 3 });
  assert.equal(full.reported, undefined);
});

test('usage is read in every format, and a zero stays a zero', () => {
  const expected = (promptTokens: number, completionTokens: number, more: object = {}): object => ({
    promptTokens,
    completionTokens,
    cachedTokens: 0,
    cacheWriteTokens: 0,
    reasoningTokens: 0,
    ...more,
  });
  const cases: [unknown, object | undefined][] = [
    [{ prompt_tokens: 10, completion_tokens: 0 }, expected(10, 0)],
    [{ prompt_tokens: 10, total_tokens: 14 }, expected(10, 4)],
    [
      {
        prompt_tokens: 10,
        completion_tokens: 4,
        prompt_tokens_details: { cached_tokens: 6, cache_creation_input_tokens: 2 },
        completion_tokens_details: { reasoning_tokens: 3 },
      },
      expected(10, 4, { cachedTokens: 6, cacheWriteTokens: 2, reasoningTokens: 3 }),
    ],
    [
      {
        prompt_tokens: 10,
        completion_tokens: 4,
        prompt_cache_hit_tokens: 8,
        prompt_cache_miss_tokens: 2,
      },
      expected(10, 4, { cachedTokens: 8 }),
    ],
    [
      {
        input_tokens: 10,
        output_tokens: 4,
        cache_read_input_tokens: 5,
        cache_creation_input_tokens: 3,
      },
      expected(18, 4, { cachedTokens: 5, cacheWriteTokens: 3 }),
    ],
    [
      {
        input_tokens: 10,
        output_tokens: 4,
        input_tokens_details: { cached_tokens: 6 },
        output_tokens_details: { reasoning_tokens: 2 },
      },
      expected(10, 4, { cachedTokens: 6, reasoningTokens: 2 }),
    ],
    [
      {
        prompt_tokens: 10,
        completion_tokens: 4,
        total_tokens: 17,
        completion_tokens_details: { reasoning_tokens: 3 },
      },
      expected(10, 4, { reasoningTokens: 3, uncountedTokens: 3 }),
    ],
    [
      { prompt_tokens: 10, completion_tokens: 4, prompt_tokens_details: null, cached_tokens: 99 },
      expected(10, 4, { cachedTokens: 10 }),
    ],
    [
      {
        prompt_tokens: 20,
        completion_tokens: 9,
        prompt_tokens_details: {
          cached_tokens: 2,
          cache_write_tokens: 6,
          audio_tokens: 4,
          image_tokens: 3,
        },
        completion_tokens_details: { audio_tokens: 5, image_tokens: 2 },
        cache_creation: { ephemeral_5m_input_tokens: 5, ephemeral_1h_input_tokens: 1 },
      },
      expected(20, 9, {
        cachedTokens: 2,
        cacheWriteTokens: 6,
        detail: { cacheWrite1h: 1, audioInput: 4, imageInput: 3, audioOutput: 5, imageOutput: 2 },
      }),
    ],
    [{ prompt_tokens: -1, completion_tokens: 4 }, undefined],
    [{ prompt_tokens: 1.5, completion_tokens: 4 }, undefined],
    [null, undefined],
    [{}, undefined],
  ];
  for (const [given, read] of cases)
    assert.deepEqual(readUsage(given), read, JSON.stringify(given));
});

test('the written usage reads back equal', () => {
  fc.assert(
    fc.property(fc.nat(1e6), fc.nat(1e6), fc.nat(100), (promptTokens, completionTokens, part) => {
      const cachedTokens = Math.floor((promptTokens * part) / 200);
      const usage = {
        promptTokens,
        completionTokens,
        cachedTokens,
        cacheWriteTokens: cachedTokens,
        reasoningTokens: Math.floor((completionTokens * part) / 200),
      };
      assert.deepEqual(readUsage(chatUsage(usage)), usage);
      const detail = {
        cacheWrite1h: part,
        audioInput: 0,
        imageInput: 2,
        audioOutput: part,
        imageOutput: 1,
      };
      const full = { ...usage, cacheWriteTokens: cachedTokens, detail };
      assert.deepEqual(readUsage(chatUsage(full)), full);
      assert.equal(chatUsageText(full), JSON.stringify(chatUsage(full)));
      assert.equal(chatUsageText(usage), JSON.stringify(chatUsage(usage)));
    }),
  );
});

test('stripping does not depend on where the text was cut', () => {
  const pieces = fc.array(
    fc.constantFrom(
      '<think>',
      '</think>',
      '<',
      '<th',
      'ink>',
      '</',
      ' ',
      '\n',
      'a',
      'b>',
      '<think',
    ),
    { maxLength: 12 },
  );
  fc.assert(
    fc.property(pieces, fc.array(fc.nat(60), { maxLength: 5 }), fc.boolean(), (...given) => {
      const [parts, cuts, mayBeInside] = given;
      const text = parts.join('');
      const whole = new ThinkStripper(mayBeInside);
      const expected = whole.push(text) + whole.finish();
      const edges = [0, ...cuts.map((cut) => Math.min(cut, text.length)), text.length].sort(
        (a, b) => a - b,
      );
      if (mayBeInside) assert.equal(stripThinkTags(text), expected);
      const stripper = new ThinkStripper(mayBeInside);
      let shown = '';
      for (const [at, edge] of edges.entries())
        if (at > 0) shown += stripper.push(text.slice(edges[at - 1], edge));
      assert.equal(shown + stripper.finish(), expected);
    }),
  );
});

test('buffered text is not searched again with each piece', (t) => {
  const searched = (pieces: number): number => {
    let chars = 0;
    const mocks = (['indexOf', 'includes'] as const).map((method) => {
      const find: (tag: string) => unknown = Reflect.get(String.prototype, method);
      return t.mock.method(String.prototype, method, function counted(this: string, tag: string) {
        chars += this.length;
        return find.call(this, tag);
      });
    });
    const stripper = new ThinkStripper(true);
    for (let at = 0; at < pieces; at += 1) assert.equal(stripper.push('thought'), '');
    for (const { mock } of mocks) mock.restore();
    assert.equal(stripper.push('</thi') + stripper.push('nk>Hi'), 'Hi');
    return chars;
  };
  assert.ok(searched(2_000) < 3 * searched(1_000));
});

test('a complete text loses everything before a lone closing tag', () => {
  assert.equal(stripThinkTags('secret</think>\nHi'), 'Hi');
  assert.equal(stripThinkTags('a <think>x</think> b'), 'a  b');
  assert.equal(stripThinkTags('a <think>never closed'), 'a ');
  assert.equal(stripThinkTags('1 < 2'), '1 < 2');
});
