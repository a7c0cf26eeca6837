/**
 * Entry file of the demo engine: serves chat completions with a fixed text which says that it is a
 * demo. It has no packages and no weights, so that the first request works without a network.
 */
import { randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import * as z from 'zod';
import { Fault } from '../../src/core/faults.ts';
import { DEMO_MODEL } from '../../src/engines/embedded/program-contract.ts';
import { readJson } from '../server/request-body.ts';
import { type EngineRequest, sendJson, serveEngine, writeEvent } from '../server/server.ts';

/** The gateway accepts bodies of up to 35 MB. */
const MAX_BODY_BYTES = 40 * 1024 * 1024;
const MAX_CHOICES = 128;

const Body = z.looseObject({
  messages: z.array(z.looseObject({ content: z.unknown() })).min(1),
  n: z.int().min(1).max(MAX_CHOICES).nullish(),
  max_tokens: z.int().min(1).nullish(),
  max_completion_tokens: z.int().min(1).nullish(),
  stop: z.union([z.string(), z.array(z.string())]).nullish(),
  stream: z.boolean().nullish(),
});
type Body = z.infer<typeof Body>;

serveEngine(async () => ({
  models: [DEMO_MODEL],
  routes: {
    'POST /v1/chat/completions': chat,
    'POST /v1/completions': () => {
      const message = 'The demo model supports chat completions only: POST /chat/completions';
      throw new Fault('INVALID_REQUEST', { message });
    },
  },
}));

async function chat({ raw }: EngineRequest, response: ServerResponse): Promise<void> {
  const body = await readJson(raw, MAX_BODY_BYTES, Body);
  const { words, finishReason } = completion(body);
  const choices = Array.from({ length: body.n ?? 1 }, (_, index) => index);
  const head = {
    id: `chatcmpl-${randomUUID()}`,
    created: Math.floor(Date.now() / 1_000),
    model: DEMO_MODEL,
  };
  const promptTokens = body.messages.reduce((sum, { content }) => sum + wordsOf(content).length, 0);
  const completionTokens = words.length * choices.length;
  const usage = {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
  };
  if (body.stream !== true) {
    const message = { role: 'assistant', content: words.join('') };
    return sendJson(response, 200, {
      ...head,
      object: 'chat.completion',
      choices: choices.map((index) => ({ index, message, finish_reason: finishReason })),
      usage,
    });
  }
  const write = (fields: object): void =>
    writeEvent(response, { ...head, object: 'chat.completion.chunk', choices: [], ...fields });
  const chunk = (index: number, delta: object, finish_reason: string | null = null): void =>
    write({ choices: [{ index, delta, finish_reason }] });
  for (const index of choices) {
    chunk(index, { role: 'assistant', content: '' });
    for (const content of words) chunk(index, { content });
    chunk(index, {}, finishReason);
  }
  write({ usage });
  response.end('data: [DONE]\n\n');
}

/** The words of the completion; each counts as one token. */
function completion(body: Body): { words: string[]; finishReason: 'stop' | 'length' } {
  const { messages, stop } = body;
  const characters = textOf(messages.at(-1)?.content).length;
  const text = `This is the demo model of Farebox. It is not a language model: each request gets this text. Your last message has ${characters} characters. To add a model, start Ollama on this machine, run "farebox models pull qwen3-0.6b", or name an engine in farebox.yaml.`;
  const stops = [stop ?? []].flat().filter((one) => text.includes(one));
  const end = Math.min(text.length, ...stops.map((one) => text.indexOf(one)));
  const words = wordsOf(text.slice(0, end));
  const most = body.max_completion_tokens ?? body.max_tokens ?? words.length;
  return { words: words.slice(0, most), finishReason: most < words.length ? 'length' : 'stop' };
}

function wordsOf(content: unknown): string[] {
  return textOf(content).match(/\S+\s*/g) ?? [];
}

/** A text, or the texts of a list of parts. */
function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return content.map((part: { readonly text?: unknown }) => textOf(part.text)).join(' ');
}
