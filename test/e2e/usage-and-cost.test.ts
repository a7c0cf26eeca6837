/** Whatever an engine sends and however its stream ends: a usage that a caller sees has a cost beside it. */
import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { after, before, describe, test } from 'node:test';
import { type LoopbackEngine, openEngine } from '../support/loopback-engine.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';

const USAGE = { prompt_tokens: 20, completion_tokens: 4, total_tokens: 24 };
const WORDS = ['One', ' two', ' three', ' four'];

interface Piece {
  readonly text?: string;
  readonly isFirst?: boolean;
  readonly isLast?: boolean;
  readonly usage?: 'chunk' | 'choice';
}

type Ending = (response: ServerResponse, write: (piece: Piece) => void) => void;

const done = (response: ServerResponse): void => void response.end('data: [DONE]\n\n');
const usageEvent = (response: ServerResponse): void =>
  void response.write(`data: ${JSON.stringify({ ...HEAD, choices: [], usage: USAGE })}\n\n`);
const HEAD = { id: 'up', object: 'chat.completion.chunk', created: 1, model: 'up' };

/** How streams of engines end, behind four words. */
const ENDINGS: Readonly<Record<string, Ending>> = {
  'a usage chunk': (response, write) => {
    write({ isLast: true });
    usageEvent(response);
    done(response);
  },
  'a usage beside the finish reason': (response, write) => {
    write({ isLast: true, usage: 'chunk' });
    done(response);
  },
  'a usage in the choice': (response, write) => {
    write({ isLast: true, usage: 'choice' });
    done(response);
  },
  'a usage with every piece': (response, write) => {
    for (const text of WORDS) write({ text, usage: 'chunk' });
    write({ isLast: true, usage: 'chunk' });
    done(response);
  },
  'no usage': (response, write) => {
    write({ isLast: true });
    done(response);
  },
  'a usage chunk and no mark': (response, write) => {
    write({ isLast: true });
    usageEvent(response);
    response.end();
  },
  'a usage chunk, then a cut connection': (response) => {
    usageEvent(response);
    setImmediate(() => response.destroy());
  },
  'a usage chunk, then an error': (response) => {
    usageEvent(response);
    response.end(`data: ${JSON.stringify({ error: { message: 'no' }, usage: USAGE })}\n\n`);
  },
  'a usage chunk, then what is no JSON': (response) => {
    usageEvent(response);
    response.end('data: {"usage":{\n\n');
  },
  'more than was granted': (response, write) => {
    for (let at = 0; at < 400; at += 1) write({ text: ' word'.repeat(20), usage: 'chunk' });
    done(response);
  },
};

const PROTOCOLS: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  '/chat/completions': { messages: [{ role: 'user', content: 'Count' }], max_tokens: 50 },
  '/completions': { prompt: 'Count', max_tokens: 50 },
  '/responses': { input: 'Count', max_output_tokens: 50 },
  '/messages': { messages: [{ role: 'user', content: 'Count' }], max_tokens: 50 },
};

/** Objects with a usage that is not null. */
function withUsage(value: unknown): Record<string, unknown>[] {
  if (typeof value !== 'object' || value === null) return [];
  const own = (value as { usage?: unknown }).usage ?? undefined;
  const inner = Object.values(value).flatMap(withUsage);
  return own === undefined ? inner : [value as Record<string, unknown>, ...inner];
}

describe('usage and cost', () => {
  let engine: LoopbackEngine;
  let farebox: TestApp;
  let ending: Ending;

  before(async () => {
    engine = await openEngine();
    farebox = await startTestApp({
      yaml: `
engines: { one: { url: ${engine.url} } }
models:
  - { id: m, type: text, context: 8000, price: { input: 1, output: 2 }, replicas: [{ engine: one }] }
limits: { plans: { staff: { text: { XS: &wide { requestsPerMinute: 100000, tokensPerMinute: 100000000 }, S: *wide, M: *wide, L: *wide } } }, guard: { failures: 100000 } }
`,
    });
    engine.answer = ({ path, body }, response) => {
      const isChat = path.endsWith('/chat/completions');
      if (JSON.parse(body).stream !== true) {
        const message = { role: 'assistant', content: 'Yes' };
        const choice = { index: 0, finish_reason: 'stop', usage: USAGE };
        const choices = [{ ...choice, ...(isChat ? { message } : { text: 'Yes' }) }];
        response.setHeader('content-type', 'application/json');
        return response.end(JSON.stringify({ id: 'up', choices, usage: USAGE }));
      }
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const write = ({ text, isFirst, isLast, usage }: Piece): void => {
        const delta = { ...(isFirst && { role: 'assistant' }), ...(text && { content: text }) };
        const choice = {
          index: 0,
          ...(isChat ? { delta } : { text: text ?? '' }),
          finish_reason: isLast === true ? 'stop' : null,
          ...(usage === 'choice' && { usage: USAGE }),
        };
        const event = { ...HEAD, choices: [choice], ...(usage === 'chunk' && { usage: USAGE }) };
        response.write(`data: ${JSON.stringify(event)}\n\n`);
      };
      write({ isFirst: true });
      for (const text of WORDS) write({ text });
      return ending(response, write);
    };
  });
  after(async () => {
    await farebox.audit();
    assert.equal((await farebox.app.stores.ledger.audit()).openHolds, 0);
    await farebox.stop();
    await engine.close();
  });

  async function post(path: string, body: object): Promise<string> {
    const response = await fetch(`${farebox.url}${path}`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${farebox.owner.secret}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify({ model: 'm', ...PROTOCOLS[path], ...body }),
    });
    return response.text();
  }

  for (const path of Object.keys(PROTOCOLS)) {
    test(`${path}: each usage in a stream has a cost, whatever the streams before it have taught`, async () => {
      // As after a start: one response that is not streamed, and then streams.
      const whole = withUsage(JSON.parse(await post(path, {})));
      assert.equal(whole.length, 1, 'the usage of the engine is in no choice');
      for (let round = 0; round < 2; round += 1) {
        for (const [name, end] of Object.entries(ENDINGS)) {
          ending = end;
          const text = await post(path, { stream: true });
          const events = text
            .split('\n')
            .filter((line) => line.startsWith('data: {'))
            .map((line) => JSON.parse(line.slice(6)));
          const found = events
            // The begin of a message says the count of its prompt, before anything is charged.
            .filter(({ type }) => type !== 'message_start')
            .flatMap(withUsage);
          assert.equal(found.length, 1, `${name}: ${text}`);
          const { cost } = found[0] as { cost?: { usd?: number } };
          assert.ok((cost?.usd ?? 0) > 0, `${name}: ${text}`);
        }
      }
    });
  }
});
