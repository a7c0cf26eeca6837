/**
 * Tests thinking, tool calls and their limits with two tiny models with known output: one thinks,
 * the other calls a function unprompted.
 */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';

import OpenAI from 'openai';

import { engineFixture } from '../../test/support/engine-fixtures.ts';
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import { LlamaEngine } from '../../src/engines/embedded/llama-engine.ts';

const LOOK_UP = {
  type: 'function',
  function: {
    name: 'look_up',
    parameters: { type: 'object', properties: { key: { type: 'string' } }, required: ['key'] },
  },
} as const;

suite('thinking and tool calls', () => {
  let engine: LlamaEngine;
  let client: OpenAI;

  before(async () => {
    const models = ['thinker', 'caller'].map((id) => ({
      id,
      path: engineFixture(`${id}.gguf`),
      work: 'chat' as const,
      contextTokens: 1_024,
      sequences: 2,
      isDemo: true,
      sampling: { temperature: 0, topP: 1, topK: 0, minP: 0 },
    }));
    const parts = { clock: systemClock(), ids: systemIds(), log: silentLog };
    engine = new LlamaEngine({ ...parts, threads: 1, models });
    const { url, apiKey } = await engine.process.address();
    client = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 });
  });

  after(async () => {
    await engine.process.close();
  });

  interface Message {
    readonly content: string | null;
    readonly reasoning_content?: string;
  }

  async function think(extra: Record<string, unknown> = {}): Promise<OpenAI.ChatCompletion> {
    const messages = [{ role: 'user' as const, content: 'Is it so?' }];
    return await client.chat.completions.create({ model: 'thinker', messages, ...extra });
  }

  function messageOf(answer: OpenAI.ChatCompletion): Message {
    return answer.choices[0]!.message;
  }

  suite('a thinking model', () => {
    test('it is reported as one', () => {
      assert.deepEqual(
        engine.models().map((model) => model.canReason),
        [true, false],
      );
    });

    test('its thinking is separate from the content and is counted', async () => {
      const answer = await think();
      assert.deepEqual(
        [messageOf(answer).reasoning_content?.trim(), messageOf(answer).content],
        ['I count words.', 'So it is.'],
      );
      const { reasoning_tokens } = answer.usage!.completion_tokens_details!;
      assert.ok(reasoning_tokens! > 3 && reasoning_tokens! < answer.usage!.completion_tokens);
    });

    test('its thinking is streamed before the content', async () => {
      const stream = await client.chat.completions.create({
        model: 'thinker',
        messages: [{ role: 'user', content: 'Is it so?' }],
        stream: true,
      });
      const kinds: string[] = [];
      for await (const chunk of stream) kinds.push(...Object.keys(chunk.choices[0]!.delta));
      const order = kinds.filter((kind, index) => kind !== kinds[index - 1]);
      assert.deepEqual(order, ['role', 'content', 'reasoning_content', 'content']);
    });

    test('thinking can be disabled', async () => {
      for (const off of [
        { reasoning_effort: 'none' },
        { chat_template_kwargs: { enable_thinking: false } },
      ]) {
        const answer = await think(off);
        assert.equal(messageOf(answer).reasoning_content, undefined);
        assert.equal(answer.usage!.completion_tokens_details!.reasoning_tokens, 0);
      }
    });

    test('its thinking is not constrained by the response format', async () => {
      const answer = await think({ response_format: { type: 'json_object' } });
      assert.equal(messageOf(answer).reasoning_content?.trim(), 'I count words.');
      assert.equal(typeof JSON.parse(messageOf(answer).content!), 'object');
    });

    test('a token limit within the thinking ends with `length` and no content', async () => {
      const answer = await think({ max_tokens: 3 });
      assert.equal(answer.choices[0]!.finish_reason, 'length');
      assert.equal(messageOf(answer).content, '');
      assert.equal(answer.usage!.completion_tokens_details!.reasoning_tokens, 3);
    });

    test('a forced call skips the thinking', async () => {
      const answer = await think({ tools: [LOOK_UP], tool_choice: 'required' });
      assert.equal(answer.choices[0]!.finish_reason, 'tool_calls');
      assert.equal(messageOf(answer).reasoning_content, undefined);
    });
  });

  suite('a model that calls functions unprompted', () => {
    test('its text and its call are separate, and the call is valid', async () => {
      const answer = await client.chat.completions.create({
        model: 'caller',
        messages: [{ role: 'user', content: 'Look it up' }],
        tools: [LOOK_UP],
        parallel_tool_calls: false,
      });
      const { message, finish_reason } = answer.choices[0]!;
      assert.equal(finish_reason, 'tool_calls');
      assert.equal(message.content?.trim(), 'I look it up.');
      const call = message.tool_calls![0]!;
      assert.ok(call.type === 'function');
      assert.deepEqual(JSON.parse(call.function.arguments), { key: 'demo' });
    });

    test('the call is content if no tools are offered', async () => {
      const answer = await client.chat.completions.create({
        model: 'caller',
        messages: [{ role: 'user', content: 'Look it up' }],
      });
      assert.match(answer.choices[0]!.message.content!, /<tool_call>/);
      assert.equal(answer.choices[0]!.message.tool_calls, undefined);
    });
  });
});
