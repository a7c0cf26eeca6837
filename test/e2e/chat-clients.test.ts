/**
 * Chat through the unmodified AI SDK and LangChain on the embedded demo model: completions, streams
 * and tools.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool as langchainTool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { generateText, streamText, tool } from 'ai';
import * as z from 'zod';
import { type TestApp, modelIsThere, startTestApp } from '../app/test-app.ts';

const MODEL = 'farebox-demo';
const CITY = z.object({ city: z.enum(['Oslo', 'Rome']) });

let farebox: TestApp;

before(async () => {
  farebox = await startTestApp({ embedded: true });
  await modelIsThere(farebox, MODEL);
});
after(async () => {
  try {
    await farebox.audit();
  } finally {
    await farebox.stop();
  }
});

describe('the AI SDK', () => {
  const model = () =>
    createOpenAICompatible({
      name: 'farebox',
      baseURL: farebox.url,
      apiKey: farebox.owner.secret,
      includeUsage: true,
    })(MODEL);

  test('`generateText` returns text and usage', async () => {
    const result = await generateText({ model: model(), prompt: 'Hello', maxOutputTokens: 20 });
    assert.ok(result.text.length > 0);
    assert.ok((result.usage.outputTokens ?? 0) > 0);
  });

  test('`streamText` streams, and the usage comes at the end', async () => {
    const result = streamText({ model: model(), prompt: 'Hello', maxOutputTokens: 20 });
    let pieces = 0;
    for await (const _ of result.textStream) pieces += 1;
    assert.ok(pieces > 0);
    assert.ok(((await result.usage).outputTokens ?? 0) > 0);
    assert.ok(['stop', 'length'].includes(await result.finishReason));
  });

  test('a tool is called and its result goes back', async () => {
    const called: string[] = [];
    const weather = tool({
      description: 'The weather of a city',
      inputSchema: CITY,
      execute: async ({ city }) => {
        called.push(city);
        return { celsius: 3 };
      },
    });
    const request = { model: model(), prompt: 'Weather?', tools: { weather } } as const;
    const result = await generateText({ ...request, toolChoice: 'required', maxOutputTokens: 60 });
    assert.equal(result.finishReason, 'tool-calls');
    assert.match(called[0] ?? '', /^(Oslo|Rome)$/);
    const streamed = streamText({ ...request, toolChoice: 'required', maxOutputTokens: 60 });
    const calls = await streamed.toolCalls;
    assert.equal(calls[0]?.toolName, 'weather');
  });
});

describe('LangChain', () => {
  const chat = (more: object = {}) =>
    new ChatOpenAI({
      model: MODEL,
      apiKey: farebox.owner.secret,
      configuration: { baseURL: farebox.url },
      maxTokens: 60,
      maxRetries: 0,
      ...more,
    });

  test('`invoke` returns text and usage', async () => {
    const answer = await chat().invoke('Hello');
    assert.ok(answer.text.length > 0);
    assert.ok(outputOf(answer) > 0);
  });

  test('`stream` streams, with the usage in a chunk', async () => {
    let text = '';
    let outputTokens = 0;
    for await (const chunk of await chat().stream('Hello')) {
      text += chunk.text;
      outputTokens += outputOf(chunk);
    }
    assert.ok(text.length > 0);
    assert.ok(outputTokens > 0);
  });

  test('a bound tool is called and its result goes back', async () => {
    const weather = langchainTool(async () => '{"celsius":3}', {
      name: 'weather',
      description: 'The weather of a city',
      schema: CITY,
    });
    const bound = chat().bindTools([weather], { tool_choice: 'required' });
    const question = new HumanMessage('Weather in Oslo?');
    const first = await bound.invoke([question]);
    const [call] = first.tool_calls ?? [];
    assert.equal(call?.name, 'weather');
    assert.match(CITY.parse(call?.args).city, /^(Oslo|Rome)$/);
    const result = new ToolMessage({ content: '{"celsius":3}', tool_call_id: call?.id ?? '' });
    const second = await chat().invoke([question, first, result]);
    assert.ok(second.text.length > 0);
  });
});

/** The library's type of a message knows its usage only for messages of its own making. */
function outputOf(message: object): number {
  const { usage_metadata: usage } = message as { usage_metadata?: { output_tokens: number } };
  return usage?.output_tokens ?? 0;
}
