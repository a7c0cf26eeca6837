/** Engines of Anthropic's Messages API, called through each protocol of callers. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { type Called, call } from '../app/call.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { AnthropicEngine, signatureOf } from '../support/anthropic-engine.ts';

const PRICE = { input: 3, output: 15, cacheInput: 0.3, cacheWrite: 3.75 };

let engine: AnthropicEngine;
let farebox: TestApp;

before(async () => {
  engine = await AnthropicEngine.start();
  const model = (id: string, replicas: string) =>
    `  - { id: ${id}, type: text, context: 200000, maxCompletionTokens: 32000, capabilities: [functionCalling, reasoning, reasoningEffort, responseSchema, vision], price: ${JSON.stringify(PRICE)}, replicas: [${replicas}] }`;
  farebox = await startTestApp({
    yaml: `
engines:
  claude: { protocol: anthropic, url: "${engine.url}", apiKey: "sk-test", addedPromptTokens: 2000 }
models:
${model('opus', '{ engine: claude, model: claude-opus }')}
`,
  });
});
after(async () => {
  try {
    await farebox.audit();
  } finally {
    await farebox.stop();
    await engine.stop();
  }
});
beforeEach(() => {
  engine.seen.length = 0;
  engine.script.length = 0;
});

function post(path: string, body: object): Promise<Called> {
  return call(farebox, path, { secret: farebox.owner.secret, body: { model: 'opus', ...body } });
}

function chunksOf({ text }: Called) {
  return [...text.matchAll(/^data: (\{.*\})$/gm)].map(([, json = '']) => JSON.parse(json));
}

const TOOL = {
  type: 'function',
  function: { name: 'add', description: 'Adds', parameters: { type: 'object', properties: {} } },
};
const THOUGHT = [
  { type: 'thinking', thinking: 'First "this"\nthen é😀' },
  { type: 'redacted_thinking', data: 'redacted-1' },
  { type: 'text', text: 'Let me "see" é😀.' },
  { type: 'tool_use', id: 'toolu_1', name: 'add', input: { a: 1, text: 'q"\n' } },
  { type: 'tool_use', id: 'toolu_2', name: 'add', input: {} },
];

const SIGNED = THOUGHT.map((block) =>
  block.type === 'thinking' ? { ...block, signature: signatureOf(block.thinking) } : block,
);

/** Folds the chunks of a stream into a message. */
function folded(called: Called) {
  const message: Called['body'] = { content: '', reasoning_content: '', tool_calls: [] };
  let finish: unknown;
  for (const { choices } of chunksOf(called)) {
    const [choice] = choices;
    if (choice === undefined) continue;
    const { content, reasoning_content, reasoning_details, annotations, tool_calls } = choice.delta;
    message['content'] += content ?? '';
    message['reasoning_content'] += reasoning_content ?? '';
    for (const [name, list] of Object.entries({ reasoning_details, annotations })) {
      if (list !== undefined) message[name] = [...(message[name] ?? []), ...list];
    }
    for (const { index, id, function: made } of tool_calls ?? []) {
      message['tool_calls'][index] ??= {
        id,
        type: 'function',
        function: { ...made, arguments: '' },
      };
      message['tool_calls'][index].function.arguments += made.arguments;
    }
    finish = choice.finish_reason ?? finish;
  }
  return { message, finish };
}

describe('an engine of the Messages API', () => {
  for (const stream of [false, true]) {
    test(`completes a chat with reasoning and tools${stream ? ' as a stream' : ''}`, async () => {
      engine.script.push({ content: THOUGHT });
      const messages: object[] = [
        {
          role: 'system',
          content: [{ type: 'text', text: 'Be brief', cache_control: { type: 'ephemeral' } }],
        },
        { role: 'user', content: 'Hello' },
      ];
      const more = {
        stream,
        tools: [TOOL],
        reasoning_effort: 'high',
        max_completion_tokens: 4_000,
        stop: ['END'],
      };
      const first = await post('/chat/completions', { messages, ...more });
      assert.equal(first.status, 200, first.text);
      const { message, finish } = stream
        ? folded(first)
        : { message: first.body.choices[0].message, finish: first.body.choices[0].finish_reason };
      const signature = signatureOf('First "this"\nthen é😀');
      assert.equal(message['content'], 'Let me "see" é😀.');
      assert.equal(message['reasoning_content'], 'First "this"\nthen é😀');
      assert.equal(finish, 'tool_calls');
      assert.deepEqual(message['reasoning_details'], [
        {
          type: 'reasoning.text',
          text: 'First "this"\nthen é😀',
          signature,
          format: 'anthropic-claude-v1',
          index: 0,
        },
        {
          type: 'reasoning.encrypted',
          data: 'redacted-1',
          format: 'anthropic-claude-v1',
          index: 1,
        },
      ]);
      const calls = message['tool_calls'].map(({ id, function: made }: Called['body']) => [
        id,
        made.name,
        JSON.parse(made.arguments),
      ]);
      assert.deepEqual(calls, [
        ['toolu_1', 'add', { a: 1, text: 'q"\n' }],
        ['toolu_2', 'add', {}],
      ]);
      const [seen] = engine.seen;
      assert.ok(seen !== undefined);
      assert.equal(seen.path, '/v1/messages');
      assert.equal(seen.headers['x-api-key'], 'sk-test');
      assert.deepEqual(seen.body, {
        model: 'claude-opus',
        max_tokens: 4_000,
        system: [{ type: 'text', text: 'Be brief', cache_control: { type: 'ephemeral' } }],
        messages: [{ role: 'user', content: [{ type: 'text', text: 'Hello' }] }],
        tools: [
          { name: 'add', description: 'Adds', input_schema: { type: 'object', properties: {} } },
        ],
        stop_sequences: ['END'],
        thinking: { type: 'adaptive' },
        output_config: { effort: 'high' },
        ...(stream ? { stream: true } : {}),
      });

      engine.script.push({ content: [{ type: 'text', text: 'Two' }] });
      messages.push(
        { role: 'assistant', ...message },
        { role: 'tool', tool_call_id: 'toolu_1', content: '1' },
        {
          role: 'tool',
          tool_call_id: 'toolu_2',
          content: [{ type: 'text', text: '2', cache_control: { type: 'ephemeral' } }],
        },
        { role: 'user', content: 'And?' },
      );
      const second = await post('/chat/completions', { messages, ...more });
      assert.equal(second.status, 200, second.text);
      assert.deepEqual(engine.seen[1]?.body.messages.slice(1), [
        {
          role: 'assistant',
          content: SIGNED,
        },
        {
          role: 'user',
          content: [
            { type: 'tool_result', tool_use_id: 'toolu_1', content: '1' },
            {
              type: 'tool_result',
              tool_use_id: 'toolu_2',
              content: [{ type: 'text', text: '2' }],
              cache_control: { type: 'ephemeral' },
            },
            { type: 'text', text: 'And?' },
          ],
        },
      ]);
    });
  }

  for (const stream of [false, true]) {
    const name = stream ? ' as a stream' : '';

    test(`receives reasoning that a Responses caller sends back${name}`, async () => {
      engine.script.push({ content: THOUGHT });
      const tools = [{ type: 'function', name: 'add', parameters: { type: 'object' } }];
      const more = { stream, tools, store: false, include: ['reasoning.encrypted_content'] };
      const input: object[] = [{ role: 'user', content: 'Hello' }];
      const reasoning = { effort: 'high' };
      const first = await post('/responses', { input, reasoning, ...more });
      assert.equal(first.status, 200, first.text);
      const { output } = stream ? chunksOf(first).at(-1).response : first.body;
      const types = output.map(({ type }: { type: string }) => type);
      assert.deepEqual(types, [
        'reasoning',
        'reasoning',
        'message',
        'function_call',
        'function_call',
      ]);
      assert.equal(output[0].summary[0].text, 'First "this"\nthen é😀');

      engine.script.push({ content: [{ type: 'text', text: 'Two' }] });
      const results = ['toolu_1', 'toolu_2'].map((call_id) => ({
        type: 'function_call_output',
        call_id,
        output: '3',
      }));
      input.push(...output, ...results);
      const second = await post('/responses', { input, reasoning, ...more });
      assert.equal(second.status, 200, second.text);
      assert.deepEqual(engine.seen[1]?.body.messages[1]?.content, SIGNED);
    });

    test(`receives reasoning of the stored response of a Responses caller${name}`, async () => {
      engine.script.push({ content: THOUGHT });
      const tools = [{ type: 'function', name: 'add', parameters: { type: 'object' } }];
      const first = await post('/responses', { input: 'Hello', stream, tools });
      const { id } = stream ? chunksOf(first).at(-1).response : first.body;
      engine.script.push({ content: [{ type: 'text', text: 'Two' }] });
      const input = ['toolu_1', 'toolu_2'].map((call_id) => ({
        type: 'function_call_output',
        call_id,
        output: '3',
      }));
      const second = await post('/responses', { previous_response_id: id, input, tools });
      assert.equal(second.status, 200, second.text);
      assert.deepEqual(engine.seen[1]?.body.messages[1]?.content, SIGNED);
    });
  }
});
