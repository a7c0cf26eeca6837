/** Tests the real engine process with the unmodified `openai` SDK. All tests share one engine. */
import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import { after, before, suite, test } from 'node:test';

import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import * as z from 'zod';

import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { type LogLine, memoryLog } from '../../test/support/memory-log.ts';
import { CALLER_HEADER } from '../../src/engines/contract.ts';
import { LlamaEngine } from '../../src/engines/embedded/llama-engine.ts';
import { demoModels } from '../../src/engines/embedded/llama-models.ts';
import { startTestLlama, type TestLlama } from '../../test/support/test-llama.ts';

const CHAT = 'farebox-demo';
const EMBEDDING = 'farebox-demo-embedding';
const SEQUENCES = demoModels()[0]!.sequences;
const HELLO = [{ role: 'user', content: 'What is Farebox?' }] as const;
const WEATHER = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'The weather of a city',
    parameters: {
      type: 'object',
      properties: { city: { type: 'string' }, days: { type: 'integer', minimum: 1 } },
      required: ['city', 'days'],
    },
  },
} as const;

suite('the embedded engine', () => {
  let llama: TestLlama;
  let client: OpenAI;

  before(async () => {
    llama = await startTestLlama();
    client = new OpenAI({ baseURL: llama.url, apiKey: llama.apiKey, maxRetries: 0 });
  });

  after(async () => {
    await llama.stop();
  });

  async function complete(
    extra: Partial<OpenAI.ChatCompletionCreateParamsNonStreaming> & Record<string, unknown> = {},
  ): Promise<OpenAI.ChatCompletion> {
    return await client.chat.completions.create({ model: CHAT, messages: [...HELLO], ...extra });
  }

  async function textOf(seed: number): Promise<string> {
    const completion = await complete({ seed, temperature: 1 });
    return completion.choices[0]!.message.content!;
  }

  suite('chat through the openai SDK', () => {
    test('at most 1,024 token biases are accepted', async () => {
      const biased = (count: number) => ({
        max_tokens: 1,
        logit_bias: Object.fromEntries(Array.from({ length: count }, (_, at) => [String(at), 1])),
      });
      assert.equal((await complete(biased(1_024))).choices.length, 1);
      await assert.rejects(complete(biased(1_025)), /logit_bias: Has at most 1024 entries/);
    });

    test('a completion ends at the end of a sentence, and its usage counts the tokens', async () => {
      const completion = await complete({ seed: 3 });
      const choice = completion.choices[0]!;
      assert.equal(choice.finish_reason, 'stop');
      assert.match(choice.message.content!, /^[A-Z].*[.!]$/s);
      assert.ok(completion.usage!.prompt_tokens > 10);
      assert.ok(completion.usage!.completion_tokens > 5);
      assert.equal(
        completion.usage!.total_tokens,
        completion.usage!.prompt_tokens + completion.usage!.completion_tokens,
      );
      assert.equal(completion.usage!.completion_tokens_details!.reasoning_tokens, 0);
      assert.match(completion.id, /^chatcmpl-[0-9a-f]{32}$/);
    });

    test('a stream contains role, content, finish reason, and usage with empty choices', async () => {
      const chunks: OpenAI.ChatCompletionChunk[] = [];
      const stream = await client.chat.completions.create({
        model: CHAT,
        messages: [...HELLO],
        stream: true,
        stream_options: { include_usage: true },
        seed: 1,
      });
      for await (const chunk of stream) chunks.push(chunk);
      assert.deepEqual(chunks[0]!.choices[0]!.delta, { role: 'assistant', content: '' });
      assert.equal(chunks.at(-2)!.choices[0]!.finish_reason, 'stop');
      assert.deepEqual(chunks.at(-1)!.choices, []);
      const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join('');
      const whole = await complete({ seed: 1 });
      assert.equal(text, whole.choices[0]!.message.content);
      assert.equal(
        chunks.at(-1)!.usage!.completion_tokens,
        whole.usage!.completion_tokens,
        'stream and body have the same usage',
      );
    });

    test('a stream has no usage chunk without `include_usage`', async () => {
      const stream = await client.chat.completions.create({
        model: CHAT,
        messages: [...HELLO],
        stream: true,
      });
      for await (const chunk of stream) assert.equal(chunk.choices.length, 1);
    });

    test('one seed always generates the same text, also in a batch with others', async () => {
      const seeds = [11, 12, 13, 14, 15, 16];
      const alone = [];
      for (const seed of seeds) alone.push(await textOf(seed));
      assert.ok(new Set(alone).size > 2, 'other seeds generate other texts');
      const rounds = [...seeds, ...seeds, ...seeds, ...seeds];
      const together = await Promise.all(rounds.map(textOf));
      assert.deepEqual(together, [...alone, ...alone, ...alone, ...alone]);
    });

    test('`n` sets the number of choices, and the usage counts all of them', async () => {
      const completion = await complete({ n: 3, seed: 7, temperature: 1 });
      assert.deepEqual(
        completion.choices.map((choice) => choice.index),
        [0, 1, 2],
      );
      const alone = await complete({ seed: 7, temperature: 1 });
      assert.equal(completion.choices[0]!.message.content, alone.choices[0]!.message.content);
      assert.ok(completion.usage!.completion_tokens > alone.usage!.completion_tokens);
    });

    test('a short chat does not wait for as many long ones of another caller as there are sequences', async () => {
      const clientOf = (caller: string): OpenAI =>
        client.withOptions({ defaultHeaders: { [CALLER_HEADER]: caller } });
      const long = {
        type: 'json_schema',
        json_schema: {
          name: 'long',
          strict: true,
          schema: {
            type: 'object',
            properties: { text: { const: 'abc '.repeat(500) } },
            required: ['text'],
            additionalProperties: false,
          },
        },
      } as const;
      const streams = await Promise.all(
        Array.from({ length: SEQUENCES }, () =>
          clientOf('busy').chat.completions.create({
            model: CHAT,
            messages: [...HELLO],
            response_format: long,
            stream: true,
          }),
        ),
      );
      let ended = 0;
      const reads = streams.map(async (stream) => {
        for await (const _ of stream);
        ended += 1;
      });
      const short = { model: CHAT, messages: [...HELLO], max_tokens: 1 };
      await clientOf('few').chat.completions.create(short);
      assert.equal(ended, 0);
      await Promise.all(reads);
    });

    test('more choices than sequences are generated in turns', async () => {
      const completion = await complete({ n: 12, max_tokens: 8 });
      assert.equal(completion.choices.length, 12);
    });

    test('`max_completion_tokens` overrides `max_tokens` and ends with `length`', async () => {
      const completion = await complete({ max_completion_tokens: 4, max_tokens: 50 });
      assert.equal(completion.choices[0]!.finish_reason, 'length');
      assert.equal(completion.usage!.completion_tokens, 4);
    });

    test('a stop text ends the content and is not part of it', async () => {
      const whole = await complete({ temperature: 0 });
      const text = whole.choices[0]!.message.content!;
      const stop = text.slice(9, 14);
      const cut = await complete({ temperature: 0, stop: [stop, 'never-written'] });
      assert.equal(cut.choices[0]!.message.content, text.slice(0, text.indexOf(stop)));
      assert.equal(cut.choices[0]!.finish_reason, 'stop');
      assert.ok(cut.usage!.completion_tokens < whole.usage!.completion_tokens);
    });

    test('a token of `stop_token_ids` ends the content', async () => {
      const completion = await complete({ temperature: 0, stop_token_ids: [...Array(832).keys()] });
      assert.equal(completion.choices[0]!.message.content, '');
      assert.equal(completion.choices[0]!.finish_reason, 'stop');
    });

    test('`logit_bias` forces and forbids tokens', async () => {
      const forced = await complete({ max_tokens: 3, logit_bias: { 700: 100 }, top_k: 1 });
      const text = forced.choices[0]!.message.content!;
      const token = text.slice(0, text.length / 3);
      assert.equal(text, token.repeat(3));
      const freed = await complete({ max_tokens: 3, logit_bias: { 700: -100 }, top_k: 1 });
      assert.ok(!freed.choices[0]!.message.content!.includes(token.repeat(3)));
    });

    test('penalties and samplers change the text', async () => {
      const greedy = await complete({ temperature: 0 });
      const narrow = await complete({ temperature: 2, top_k: 1, seed: 4 });
      assert.equal(narrow.choices[0]!.message.content, greedy.choices[0]!.message.content);
      const pushed = await complete({ temperature: 0, presence_penalty: 2, frequency_penalty: 2 });
      assert.ok(pushed.choices[0]!.message.content!.length > 0);
      const repeated = await complete({ temperature: 0, repetition_penalty: 5, max_tokens: 60 });
      assert.notEqual(repeated.choices[0]!.message.content, greedy.choices[0]!.message.content);
      const certain = await complete({ temperature: 1, top_p: 0.01, min_p: 0.9, seed: 9 });
      assert.equal(certain.choices[0]!.message.content, greedy.choices[0]!.message.content);
    });

    test('logprobs cover exactly the text, and the top tokens are sorted', async () => {
      const completion = await complete({ logprobs: true, top_logprobs: 3, temperature: 0 });
      const { message, logprobs } = completion.choices[0]!;
      const tokens = logprobs!.content!;
      assert.equal(tokens.map((token) => token.token).join(''), message.content);
      for (const token of tokens) {
        assert.ok(token.logprob <= 0);
        assert.equal(Buffer.from(token.bytes!).toString(), token.token);
        assert.equal(token.top_logprobs[0]!.token, token.token, 'greedy takes the best');
      }
      assert.equal(tokens[0]!.top_logprobs.length, 3);
    });

    test('logprobs describe the model, whatever the sampling', async () => {
      const messages = [{ role: 'user' as const, content: 'Tell me about the ledger.' }];
      const scored = async (more: object) => {
        const options = { messages, max_tokens: 1, logprobs: true, top_logprobs: 5, ...more };
        const completion = await complete(options);
        return completion.choices[0]!.logprobs!.content![0]!;
      };
      const rounded = (list: readonly { token: string; logprob: number }[]) =>
        list.map(({ token, logprob }) => [token, logprob.toFixed(3)]);
      const raw = await scored({ temperature: 0 });
      const samplings = [
        { temperature: 0.3, seed: 1 },
        { temperature: 2, seed: 2 },
        { temperature: 1, seed: 3, top_p: 0.1 },
        { temperature: 1, seed: 4, top_k: 1 },
        { temperature: 1.5, seed: 5, logit_bias: { 5: 1 }, presence_penalty: 1 },
      ];
      for (const sampling of samplings) {
        const one = await scored(sampling);
        assert.deepEqual(rounded(one.top_logprobs), rounded(raw.top_logprobs));
        const known = raw.top_logprobs.find(({ token }) => token === one.token);
        if (known !== undefined) assert.equal(one.logprob.toFixed(3), known.logprob.toFixed(3));
        // Truncation to the likeliest tokens excludes the others.
        if ('top_p' in sampling || 'top_k' in sampling) assert.equal(one.token, raw.token);
      }
      const again = await scored({ temperature: 2, seed: 2 });
      assert.equal(again.token, (await scored({ temperature: 2, seed: 2 })).token);
    });

    test('logprobs under a grammar cover the allowed tokens, without the temperature', async () => {
      const schema = { type: 'string', enum: ['red', 'blue', 'green'] };
      const scored = async (temperature: number) => {
        const completion = await complete({
          temperature,
          seed: 1,
          max_tokens: 2,
          logprobs: true,
          top_logprobs: 3,
          response_format: { type: 'json_schema', json_schema: { name: 'colour', schema } },
        });
        const [first] = completion.choices[0]!.logprobs!.content!;
        return first!.top_logprobs.map(({ token, logprob }) => [token, logprob.toFixed(2)]);
      };
      const open = await scored(1);
      assert.deepEqual(await scored(0.5), open);
      assert.deepEqual(await scored(1.7), open);
    });

    test('logprobs do not change where a completion ends', async () => {
      const options = { temperature: 0, max_tokens: 200 };
      const plain = await complete(options);
      const scored = await complete({ ...options, logprobs: true });
      assert.deepEqual(
        [scored.choices[0]!.message.content, scored.choices[0]!.finish_reason],
        [plain.choices[0]!.message.content, plain.choices[0]!.finish_reason],
      );
      assert.deepEqual(scored.usage!.completion_tokens, plain.usage!.completion_tokens);
    });

    test('a repeated prompt is cached', async () => {
      const messages = [
        { role: 'user' as const, content: `Tell me about the ledger. ${'x '.repeat(40)}` },
      ];
      await complete({ messages, max_tokens: 2 });
      const again = await complete({ messages, max_tokens: 2 });
      const details = again.usage!.prompt_tokens_details!;
      assert.equal(details.cached_tokens, again.usage!.prompt_tokens - 1);
    });

    test('prompts with different salts share no cached state', async () => {
      const messages = [
        { role: 'user' as const, content: `Tell me about the salts. ${'x '.repeat(40)}` },
      ];
      const cachedWith = async (cache_salt?: string): Promise<number> => {
        const salted = { messages, max_tokens: 2, ...(cache_salt && { cache_salt }) };
        const completion = await complete(salted);
        return completion.usage!.prompt_tokens_details!.cached_tokens!;
      };
      assert.equal(await cachedWith('one'), 0);
      assert.ok((await cachedWith('one')) > 40);
      assert.equal(await cachedWith('two'), 0);
      // Prompts without a salt may share the prefix of other prompts without one.
      assert.ok((await cachedWith()) < 40);
      // Other salts now own all sequences, and none holds the first prompt.
      for (let at = 0; at < 8; at += 1) assert.equal(await cachedWith(`other-${at}`), 0);
    });

    test('all roles and text parts are accepted', async () => {
      const completion = await complete({
        messages: [
          { role: 'developer', content: 'Be brief.' },
          { role: 'user', content: [{ type: 'text', text: 'Hello' }] },
          {
            role: 'assistant',
            content: null,
            tool_calls: [
              { id: 'call_1', type: 'function', function: { name: 'f', arguments: '{"a":1}' } },
            ],
          },
          { role: 'tool', tool_call_id: 'call_1', content: '42' },
        ],
      });
      assert.ok(completion.choices[0]!.message.content!.length > 0);
    });
  });

  suite('text completions', () => {
    const options = { model: CHAT, prompt: 'Hello. I am', max_tokens: 24, seed: 5 } as const;

    test('a prompt is completed without a template, with the same text in a stream', async () => {
      const whole = await client.completions.create(options);
      const [choice] = whole.choices;
      assert.equal(whole.object, 'text_completion');
      assert.ok(choice!.text.length > 0);
      assert.ok(['stop', 'length'].includes(choice!.finish_reason));
      // A chat template alone has more tokens.
      assert.ok(whole.usage!.prompt_tokens < 10, String(whole.usage!.prompt_tokens));
      assert.ok(whole.usage!.completion_tokens <= 24);
      const stream_options = { include_usage: true };
      let text = '';
      let total = 0;
      for await (const event of await client.completions.create({
        ...options,
        stream: true,
        stream_options,
      })) {
        text += event.choices[0]?.text ?? '';
        total = event.usage?.total_tokens ?? total;
      }
      assert.equal(text, choice!.text);
      assert.equal(total, whole.usage!.total_tokens);
    });

    test('several prompts and choices are returned in order with echo and logprobs', async () => {
      const prompt = ['Hello. I am', 'The sky'];
      const completion = await client.completions.create({
        ...options,
        prompt,
        n: 2,
        echo: true,
        logprobs: 2,
        max_tokens: 4,
      });
      assert.deepEqual(
        completion.choices.map(({ index }) => index),
        [0, 1, 2, 3],
      );
      for (const [place, { text, logprobs }] of completion.choices.entries()) {
        const start = prompt[Math.floor(place / 2)]!;
        assert.ok(text.startsWith(start));
        assert.equal(start + logprobs!.tokens!.join(''), text);
        assert.ok(logprobs!.token_logprobs!.every((one) => one <= 0));
        assert.equal(logprobs!.text_offset![0], start.length);
        assert.ok(Object.keys(logprobs!.top_logprobs![0]!).length >= 2);
      }
      assert.ok(completion.usage!.completion_tokens <= 16);
    });

    test('unsupported options are rejected with the reason', async () => {
      const bad: readonly (readonly [object, RegExp])[] = [
        [{ prompt: [1, 2] }, /does not accept token ids/],
        [{ suffix: 'end' }, /does not support suffix/],
        [{ max_tokens: 0 }, /does not score prompts/],
        [{ best_of: 3 }, /must not exceed n/i],
        [{ prompt: 'word '.repeat(20_000) }, /8192/],
      ];
      for (const [more, pattern] of bad) {
        const gone = client.completions.create({ ...options, ...more });
        await assert.rejects(gone, (error: { status?: number; message: string }) => {
          assert.match(error.message, pattern);
          return error.status === 400;
        });
      }
    });
  });

  suite('formats and tools', () => {
    test('`json_object` generates valid JSON', async () => {
      for (const seed of [1, 2, 3, 4]) {
        const completion = await complete({ response_format: { type: 'json_object' }, seed });
        assert.equal(completion.choices[0]!.finish_reason, 'stop');
        assert.equal(typeof JSON.parse(completion.choices[0]!.message.content!), 'object');
      }
    });

    test('`parse` of the SDK returns a value of the schema', async () => {
      const Report = z.object({
        city: z.string(),
        level: z.enum(['low', 'high']),
        degrees: z.number(),
        steps: z.array(z.object({ title: z.string(), done: z.boolean() })).max(2),
        note: z.string().nullable(),
      });
      const completion = await client.chat.completions.parse({
        model: CHAT,
        messages: [...HELLO],
        response_format: zodResponseFormat(Report, 'report'),
        seed: 2,
      });
      const { parsed } = completion.choices[0]!.message;
      assert.ok(parsed !== null);
      assert.ok(['low', 'high'].includes(parsed.level));
      assert.equal(typeof parsed.degrees, 'number');
    });

    test('a bare schema in `json_schema` is accepted', async () => {
      const json_schema = { type: 'object', properties: { ok: { const: true } }, required: ['ok'] };
      const completion = await complete({
        response_format: { type: 'json_schema', json_schema } as never,
      });
      assert.deepEqual(JSON.parse(completion.choices[0]!.message.content!), { ok: true });
    });

    test('a forced tool call can be followed by its result', async () => {
      const options = await complete({ tools: [WEATHER], tool_choice: 'required' });
      const { message, finish_reason } = options.choices[0]!;
      assert.equal(finish_reason, 'tool_calls');
      assert.equal(message.content, null);
      const call = message.tool_calls![0]!;
      assert.ok(call.type === 'function');
      assert.equal(call.function.name, 'get_weather');
      const parameters = JSON.parse(call.function.arguments) as { city: string; days: number };
      assert.equal(typeof parameters.city, 'string');
      assert.ok(Number.isInteger(parameters.days));
      const answered = await complete({
        tools: [WEATHER],
        messages: [...HELLO, message, { role: 'tool', tool_call_id: call.id, content: 'Sunny' }],
      });
      assert.equal(answered.choices[0]!.finish_reason, 'stop');
    });

    test('`tool_choice` selects the named function', async () => {
      const other = {
        type: 'function',
        function: { name: 'now', parameters: { type: 'object', properties: {} } },
      } as const;
      const completion = await complete({
        tools: [WEATHER, other],
        tool_choice: { type: 'function', function: { name: 'now' } },
      });
      const call = completion.choices[0]!.message.tool_calls![0]!;
      assert.ok(call.type === 'function');
      assert.equal(call.function.name, 'now');
      assert.equal(call.function.arguments, '{}');
    });

    test('the first delta of a streamed call contains index, id, type and name', async () => {
      const stream = await client.chat.completions.create({
        model: CHAT,
        messages: [...HELLO],
        tools: [WEATHER],
        tool_choice: 'required',
        stream: true,
      });
      const deltas = [];
      let finish: string | null = null;
      for await (const chunk of stream) {
        deltas.push(...(chunk.choices[0]?.delta.tool_calls ?? []));
        finish = chunk.choices[0]?.finish_reason ?? finish;
      }
      const first = deltas[0]!;
      assert.equal(first.index, 0);
      assert.match(first.id!, /^call_/);
      assert.equal(first.type, 'function');
      assert.equal(first.function!.name, 'get_weather');
      assert.ok(deltas.length > 3, 'the arguments are streamed');
      const text = deltas.map((delta) => delta.function?.arguments ?? '').join('');
      assert.deepEqual(Object.keys(JSON.parse(text) as object), ['city', 'days']);
      assert.equal(finish, 'tool_calls');
    });

    test('the demo model generates text with `tool_choice` none or auto', async () => {
      for (const tool_choice of ['none', 'auto'] as const) {
        const completion = await complete({ tools: [WEATHER], tool_choice });
        assert.equal(completion.choices[0]!.finish_reason, 'stop');
        assert.ok(completion.choices[0]!.message.content!.length > 0);
      }
    });
  });

  suite('rejections', () => {
    async function refusal(
      extra: Record<string, unknown>,
    ): Promise<InstanceType<typeof OpenAI.APIError>> {
      const error = await complete(extra as never).then(
        () => assert.fail('The request succeeded'),
        (reason: unknown) => reason,
      );
      assert.ok(error instanceof OpenAI.APIError);
      return error;
    }

    test('a prompt that exceeds the context is rejected with its own code', async () => {
      const messages = [{ role: 'user', content: 'word '.repeat(20_000) }];
      const error = await refusal({ messages });
      assert.equal(error.status, 400);
      assert.equal(error.code, 'context_length_exceeded');
      assert.match(error.message, /8192/);
      assert.equal((await refusal({ messages, stream: true })).status, 400);
    });

    test('a completion ends with `length` at the end of the context, which is not shifted', async () => {
      await llama.engine.load({
        ...demoModels()[0]!,
        id: 'short',
        contextTokens: 256,
        sequences: 1,
      });
      const schema = { type: 'array', items: { type: 'string' }, minItems: 500 };
      const completion = await complete({
        model: 'short',
        response_format: { type: 'json_schema', json_schema: { name: 'long', schema } },
      });
      assert.equal(completion.choices[0]!.finish_reason, 'length');
      assert.equal(completion.usage!.total_tokens, 255);
      const again = await complete({ model: 'short', max_tokens: 1 });
      const details = again.usage!.prompt_tokens_details!;
      assert.equal(details.cached_tokens, again.usage!.prompt_tokens - 1);
    });

    test('an unknown model is rejected with 404', async () => {
      const error = await refusal({ model: 'nope' });
      assert.equal(error.status, 404);
      assert.equal(error.code, 'model_not_found');
    });

    test('an invalid field is rejected with its name', async () => {
      assert.equal((await refusal({ temperature: 3 })).param, 'temperature');
      assert.equal((await refusal({ stop: ['1', '2', '3', '4', '5'] })).status, 400);
      assert.equal((await refusal({ messages: [] })).param, 'messages');
      const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,AA' } };
      assert.match(
        (await refusal({ messages: [{ role: 'user', content: [image] }] })).message,
        /image_url/,
      );
      const named = { type: 'function', function: { name: 'other' } };
      assert.equal((await refusal({ tools: [WEATHER], tool_choice: named })).param, 'tool_choice');
    });

    test('a full queue responds 429 with `Retry-After`', async () => {
      const requests = Array.from({ length: 100 }, async () => complete({ max_tokens: 400 }));
      const results = await Promise.allSettled(requests);
      const refused = results.filter((result) => result.status === 'rejected');
      assert.ok(refused.length > 0);
      for (const { reason } of refused) {
        assert.ok(reason instanceof OpenAI.RateLimitError);
        assert.equal(reason.headers.get('retry-after'), '1');
      }
      assert.ok(results.length - refused.length >= 64);
    });

    test('invalid JSON is rejected with 400, an unknown path with 404', async () => {
      const headers = { authorization: `Bearer ${llama.apiKey}` };
      const chats = `${llama.url}/chat/completions`;
      assert.equal((await fetch(chats, { method: 'POST', body: '{', headers })).status, 400);
      assert.equal((await fetch(`${llama.url}/nothing`, { headers })).status, 404);
    });
  });

  suite('a disconnect', () => {
    test('the sequence of an aborted request is released at once', async () => {
      // Eight long lists occupy all eight sequences for many seconds.
      const schema = { type: 'array', items: { type: 'string' }, minItems: 500 };
      const long = {
        model: CHAT,
        messages: [...HELLO],
        stream: true as const,
        response_format: { type: 'json_schema' as const, json_schema: { name: 'long', schema } },
      };
      const streams = await Promise.all(
        Array.from({ length: 8 }, async () => client.chat.completions.create(long)),
      );
      const readers = streams.map((stream) => stream[Symbol.asyncIterator]());
      for (const reader of readers) for (let i = 0; i < 3; i += 1) await reader.next();
      const start = performance.now();
      for (const stream of streams) stream.controller.abort();
      const completion = await complete({ max_tokens: 1 });
      const waitedMs = performance.now() - start;
      assert.equal(completion.usage!.completion_tokens, 1);
      // Takes 30 to 40 ms on an idle machine; completions that are not aborted would delay it by 20
      // seconds each.
      assert.ok(waitedMs < 10_000, `took ${Math.round(waitedMs)} ms`);
    });
  });

  suite('embeddings', () => {
    test('vectors have length 1, and similar texts have close vectors', async () => {
      const input = [
        'The balance is kept in a ledger',
        'The ledger keeps the balance',
        'Wallets pay with USDC on Base',
      ];
      const completion = await client.embeddings.create({ model: EMBEDDING, input });
      const [a, b, c] = completion.data.map((item) => item.embedding);
      assert.ok(Math.abs(Math.hypot(...a!) - 1) < 1e-5);
      assert.ok(dot(a!, b!) > dot(a!, c!) + 0.1);
      assert.ok(completion.usage.prompt_tokens > 10);
    });

    test('base64 encodes the same floats', async () => {
      const options = { model: EMBEDDING, input: 'ledger' };
      const packed = await client.embeddings.create(options);
      const plain = await client.embeddings.create({ ...options, encoding_format: 'float' });
      assert.deepEqual(packed.data[0]!.embedding.length, 416);
      for (const [index, value] of plain.data[0]!.embedding.entries()) {
        assert.ok(Math.abs(value - packed.data[0]!.embedding[index]!) < 1e-6);
      }
    });

    test('`dimensions` truncates the vector and normalises it again', async () => {
      const completion = await client.embeddings.create({
        model: EMBEDDING,
        input: 'a key',
        dimensions: 64,
      });
      assert.equal(completion.data[0]!.embedding.length, 64);
      assert.ok(Math.abs(Math.hypot(...completion.data[0]!.embedding) - 1) < 1e-5);
      await assert.rejects(
        client.embeddings.create({ model: EMBEDDING, input: 'a key', dimensions: 4_000 }),
        OpenAI.BadRequestError,
      );
    });

    test('known token ids are accepted, unknown ones rejected', async () => {
      const completion = await client.embeddings.create({
        model: EMBEDDING,
        input: [[300, 301], [302]],
      });
      assert.equal(completion.data.length, 2);
      assert.equal(completion.usage.prompt_tokens, 3);
      await assert.rejects(
        client.embeddings.create({ model: EMBEDDING, input: [999_999] }),
        OpenAI.BadRequestError,
      );
    });

    test('vectors of a long input are averaged over windows', async () => {
      await llama.engine.load({ ...demoModels()[1]!, id: 'narrow', contextTokens: 256 });
      const input = 'a ledger and a key '.repeat(150);
      const narrow = await client.embeddings.create({ model: 'narrow', input });
      const wide = await client.embeddings.create({ model: EMBEDDING, input });
      assert.ok(narrow.usage.prompt_tokens > 512, String(narrow.usage.prompt_tokens));
      const likeness = dot(narrow.data[0]!.embedding, wide.data[0]!.embedding);
      assert.ok(likeness > 0.98, String(likeness));
    });
  });

  function dot(left: readonly number[], right: readonly number[]): number {
    return left.reduce((sum, value, index) => sum + value * right[index]!, 0);
  }

  suite('the engine process', () => {
    test('the models are listed as demos', async () => {
      const ids = [];
      for await (const model of client.models.list()) ids.push(model.id);
      assert.deepEqual(ids.slice(0, 2), [CHAT, EMBEDDING]);
      assert.ok(llama.engine.models().every((model) => model.isDemo));
    });

    test('a killed process restarts at the same address with the same models', async () => {
      const lines: LogLine[] = [];
      const changes: (() => void)[] = [];
      const engine = new LlamaEngine({
        clock: systemClock(),
        ids: systemIds(),
        log: memoryLog(lines),
        threads: 1,
        models: demoModels().slice(0, 1),
        onChange: () => changes.forEach((check) => check()),
      });
      try {
        const address = await engine.process.address();
        const models = `${address.url}/v1/models`;
        assert.equal((await fetch(models)).status, 401);
        const added = await engine.load({ ...demoModels()[1]!, id: 'later' });
        assert.equal(added.dimensions, 416);
        await assert.rejects(
          engine.load({ ...demoModels()[0]!, id: 'broken', path: fileURLToPath(import.meta.url) }),
          /broken cannot be loaded/,
        );
        const restarted = new Promise<void>((resolve) => {
          changes.push(() => {
            if (engine.process.runningAt !== undefined && engine.process.pid !== before) resolve();
          });
        });
        const before = engine.process.pid!;
        process.kill(before, 'SIGKILL');
        await restarted;
        assert.deepEqual(engine.process.runningAt, address);
        assert.deepEqual(
          engine.models().map((model) => model.id),
          [CHAT, 'later'],
        );
        const headers = { authorization: `Bearer ${address.apiKey}` };
        assert.equal((await fetch(models, { headers })).status, 200);
        assert.ok(lines.some((line) => line.message.includes('is restarted')));
      } finally {
        await engine.process.close();
      }
      assert.equal(engine.process.runningAt, undefined);
      await assert.rejects(engine.process.address(), { code: 'SHUTTING_DOWN' });
    });
  });
});
