/**
 * Turns through the pass-through of each protocol: 200 as JSON and 200 as streams. The engine writes
 * its bytes in pieces that end anywhere, within characters too. The caller receives the bytes of the
 * engine, except the members that are this server's, and pays for the usage of the engine.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import fc from 'fast-check';
import { call } from '../app/call.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { type Block, eventsOf, signatureOf } from '../support/anthropic-engine.ts';
import { anyCharacter } from '../support/any-character.ts';
import {
  customCall,
  engineEvents,
  engineResponse,
  eventBytes,
  functionCall,
  message,
  reasoning,
} from '../support/responses-engine.ts';
import { type Behaviour, TestUpstream } from '../support/test-upstream.ts';

const TURNS = 200;
/** USD for a million tokens. */
const PRICE = { input: 3, output: 15, cacheInput: 0.3, cacheWrite: 3.75, cacheWrite1h: 6 };
const LIMITS = `limits: { plans: { paid: { text: { XS: &wide { requestsPerMinute: 100000, tokensPerMinute: 100000000 }, S: *wide, M: *wide, L: *wide } } } }`;

interface Counts {
  readonly fresh: number;
  readonly cached: number;
  readonly written: number;
  readonly written1h: number;
  readonly output: number;
  readonly reasoning: number;
}

interface Turn {
  /** The bytes of the engine. */
  readonly sent: string;
  readonly counts: Counts;
}

interface Recorded {
  readonly path: string;
  readonly protocol: string;
  readonly body: object;
  readonly turn: fc.Arbitrary<(stream: boolean) => Turn>;
  /** Fails unless the caller received the bytes of the engine. */
  readonly compare: (received: string, sent: string, stream: boolean) => void;
}

const text = fc.string({ unit: anyCharacter, maxLength: 20 });
const words = text.map((more) => `a${more}`);
const json = fc.dictionary(words, fc.jsonValue({ maxDepth: 2 }), { maxKeys: 3 });
const count = fc.nat(2_000);
const counts: fc.Arbitrary<Counts> = fc.record({
  fresh: count.map((tokens) => tokens + 1),
  cached: count,
  written: fc.oneof(fc.constant(0), count),
  written1h: fc.oneof(fc.constant(0), count),
  output: fc.integer({ min: 101, max: 500 }),
  reasoning: fc.nat(100),
});

/** Pieces of one to seven UTF-16 units. */
function pieces(given: string): string[] {
  return given.match(/.{1,7}/gsu) ?? [];
}

function nanoOf({ fresh, cached, written, written1h, output }: Counts): number {
  return Math.round(
    1_000 *
      (fresh * PRICE.input +
        cached * PRICE.cacheInput +
        written * PRICE.cacheWrite +
        written1h * PRICE.cacheWrite1h +
        output * PRICE.output),
  );
}

/** Some engines escape every character outside of ASCII. */
function escaped(given: string): string {
  return given.replaceAll(
    /[^\n -~]/g,
    (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

const COST = /,"cost":\{[^}]*\},"svc_parameters":\{.*?"web_search_citations":\[\]\}/g;

function dataOf(received: string) {
  return [...received.matchAll(/^data: (\{.*\})$/gm)].map(([, data = '']) => JSON.parse(data));
}

const chatMessage = fc.record({
  content: fc.oneof(words, fc.constant('')),
  reasoning_content: fc.option(words),
  refusal: fc.option(words, { nil: undefined }),
  calls: fc.array(json, { maxLength: 2 }),
});

/** The caller has the id, the model, the time and the usage of this server. */
const CHAT: Recorded = {
  path: '/chat/completions',
  protocol: 'openai',
  body: { messages: [{ role: 'user', content: 'Hi' }] },
  turn: fc.tuple(chatMessage, counts, fc.boolean()).map(([given, counted, isAscii]) => (stream) => {
    const { calls, content, ...others } = given;
    const tool_calls = calls.map((input, index) => {
      const made = { name: 'add', arguments: JSON.stringify(input) };
      return { index, id: `call_${index}`, type: 'function', function: made };
    });
    const isEmpty = content === '' && calls.length === 0;
    const said = isEmpty ? 'Hi' : content;
    const finish_reason = calls.length === 0 ? 'stop' : 'tool_calls';
    const known = { ...counted, written: 0, written1h: 0 };
    const prompt = known.fresh + known.cached;
    const usage = {
      prompt_tokens: prompt,
      completion_tokens: known.output,
      total_tokens: prompt + known.output,
      prompt_tokens_details: { cached_tokens: known.cached },
      completion_tokens_details: { reasoning_tokens: known.reasoning },
    };
    const written = (value: unknown) =>
      isAscii ? escaped(JSON.stringify(value)) : JSON.stringify(value);
    const head = { id: 'chatcmpl-1', created: 1_764_000_000, model: 'engine-model' };
    if (!stream) {
      const whole = { role: 'assistant', content: said, ...others, tool_calls };
      const choices = [
        { index: 0, message: whole, logprobs: null, finish_reason, stop_reason: null },
      ];
      const sent = written({ ...head, object: 'chat.completion', choices, usage });
      return { sent, counts: known };
    }
    const deltas: object[] = [{ role: 'assistant', content: '' }];
    for (const [name, value] of Object.entries({ ...others, content: said })) {
      for (const piece of pieces(value ?? '')) deltas.push({ [name]: piece });
    }
    for (const { function: made, index, ...call } of tool_calls) {
      deltas.push({ tool_calls: [{ index, ...call, function: { ...made, arguments: '' } }] });
      for (const piece of pieces(made.arguments)) {
        deltas.push({ tool_calls: [{ index, function: { arguments: piece } }] });
      }
    }
    const chunk = (choices: readonly object[], more: object = {}) =>
      `data: ${written({ ...head, object: 'chat.completion.chunk', choices, ...more })}\n\n`;
    const sent = [
      ...deltas.map((delta) => chunk([{ index: 0, delta, logprobs: null, finish_reason: null }])),
      chunk([{ index: 0, delta: {}, logprobs: null, finish_reason }]),
      chunk([], { usage }),
      'data: [DONE]\n\n',
    ];
    return { sent: sent.join(''), counts: known };
  }),
  compare: (received, sent, stream) => {
    const choicesOf = (whole: string) =>
      (stream ? dataOf(whole) : [JSON.parse(whole)])
        .map(({ choices }) => choices)
        .filter(({ length }) => length > 0);
    assert.deepEqual(choicesOf(received), choicesOf(sent));
    for (const choices of choicesOf(sent)) {
      const bytes = `"choices":${JSON.stringify(choices)}`;
      if (sent.includes(bytes)) assert.ok(received.includes(bytes), `${bytes} in ${received}`);
    }
  },
};

const textBlock = words.map((said) => ({ type: 'text', text: said }));
const citedBlock = words.map((said) => ({
  type: 'text',
  text: said,
  citations: [{ type: 'char_location', cited_text: said, document_index: 0 }],
}));
const thinkingBlock = words.map((thinking) => {
  return { type: 'thinking', thinking, signature: signatureOf(thinking) };
});
const redactedBlock = words.map((data) => ({ type: 'redacted_thinking', data }));
const useBlock = json.map((input) => ({ type: 'tool_use', id: 'toolu_1', name: 'add', input }));
const blocks: fc.Arbitrary<Block[]> = fc
  .tuple(
    fc.array(fc.oneof(thinkingBlock, redactedBlock), { maxLength: 2 }),
    fc.array(fc.oneof(textBlock, citedBlock), { minLength: 1, maxLength: 3 }),
    fc.array(useBlock, { maxLength: 2 }),
  )
  .map(([thoughts, texts, uses]) => [...thoughts, ...texts, ...uses]);

const NO_USAGE = {
  input_tokens: 0,
  output_tokens: 0,
  cache_read_input_tokens: 0,
  cache_creation_input_tokens: 0,
};

/** The caller has the name of the model, and the cost. */
const MESSAGES: Recorded = {
  path: '/messages',
  protocol: 'anthropic',
  body: { max_tokens: 8_000, messages: [{ role: 'user', content: 'Hi' }] },
  turn: fc
    .tuple(blocks, counts, fc.boolean(), fc.boolean())
    .map(([content, counted, isAscii, isLate]) => (stream) => {
      const created = {
        ephemeral_5m_input_tokens: counted.written,
        ephemeral_1h_input_tokens: counted.written1h,
      };
      const usage = {
        input_tokens: counted.fresh,
        cache_read_input_tokens: counted.cached,
        cache_creation_input_tokens: counted.written + counted.written1h,
        cache_creation: created,
        output_tokens: counted.output,
        service_tier: 'standard',
      };
      const hasCall = content.some(({ type }) => type === 'tool_use');
      const whole = {
        model: 'engine-model',
        id: 'msg_1',
        type: 'message',
        role: 'assistant',
        content,
        stop_reason: hasCall ? 'tool_use' : 'end_turn',
        stop_sequence: null,
        usage,
      };
      const written = (value: unknown) =>
        isAscii ? escaped(JSON.stringify(value)) : JSON.stringify(value);
      if (!stream) return { sent: written(whole), counts: counted };
      const events = eventsOf(whole).map((event) => {
        // Some servers know the usage of the prompt at the end only.
        if (!isLate) return event;
        if (event['type'] === 'message_delta') return { ...event, usage };
        if (event['type'] !== 'message_start') return event;
        const start = { content: [], stop_reason: null, usage: NO_USAGE };
        return { ...event, message: { ...whole, ...start } };
      });
      const sent = events.map((event) => {
        return `event: ${String(event['type'])}\ndata: ${written(event)}\n\n`;
      });
      return { sent: sent.join(''), counts: counted };
    }),
  compare: (received, sent) => {
    const shown = received.replace('"model":"anthropic"', '"model":"engine-model"');
    assert.equal(shown.replaceAll(COST, ''), sent);
  },
};

const item = fc.oneof(
  fc.tuple(text, words).map(([one, data]) => reasoning('rs_1', one === '' ? [] : [one], data)),
  words.map((said) => message('msg_1', said)),
  words.map((said) => {
    const source = { type: 'url_citation', url: 'https://example.com', title: said };
    return message('msg_2', said, [{ ...source, start_index: 0, end_index: 1 }]);
  }),
  json.map((input) => functionCall('1', 'exec', input)),
  words.map((input) => customCall('2', 'apply_patch', input)),
  words.map((command) => {
    const action = { type: 'exec', command: [command] };
    const members = { status: 'completed', call_id: 'call_3', action };
    return { id: 'lsh_1', type: 'local_shell_call', ...members };
  }),
);

/** The caller has the id of the response, the name of the model, and the cost. */
const RESPONSES: Recorded = {
  path: '/responses',
  protocol: 'responses',
  body: { input: 'Hi', store: false },
  turn: fc
    .tuple(fc.array(item, { minLength: 1, maxLength: 5 }), counts, fc.boolean(), fc.boolean())
    .map(([output, counted, isAscii, isSpaced]) => (stream) => {
      const known = { ...counted, written: 0, written1h: 0 };
      const input = known.fresh + known.cached;
      const usage = {
        input_tokens: input,
        input_tokens_details: { cached_tokens: known.cached },
        output_tokens: known.output,
        output_tokens_details: { reasoning_tokens: known.reasoning },
        total_tokens: input + known.output,
      };
      const given = { output, usage };
      const bytes = stream
        ? eventBytes(engineEvents(given))
        : JSON.stringify(engineResponse(given));
      const spaced = isSpaced ? bytes.replaceAll('"type":', '"type": ') : bytes;
      return { sent: isAscii ? escaped(spaced) : spaced, counts: known };
    }),
  compare: (received, sent) => {
    const shown = received
      .replaceAll(/"id":"resp_[\da-f]{32}"/g, '"id":"resp_engine"')
      .replaceAll('"model":"responses"', '"model":"engine-model"');
    assert.equal(shown.replaceAll(COST, ''), sent);
  },
};

/** Sends the bytes in pieces; `cuts` are places as a share of the length. */
function sendsInPieces(sent: string, cuts: readonly number[], stream: boolean): Behaviour {
  return {
    kind: 'own',
    answer: (response) => {
      const bytes = Buffer.from(sent);
      const type = stream ? 'text/event-stream' : 'application/json';
      response.writeHead(200, { 'content-type': type });
      const places = cuts.map((cut) => Math.floor(cut * bytes.length)).toSorted((a, b) => a - b);
      void (async () => {
        let from = 0;
        for (const to of [...places, bytes.length]) {
          response.write(bytes.subarray(from, to));
          from = to;
          await nextTurn();
        }
        response.end();
      })();
    },
  };
}

describe('turns of an engine', () => {
  let engine: TestUpstream;
  let farebox: TestApp;

  before(async () => {
    engine = await TestUpstream.start();
    const model = ({ protocol }: Recorded) =>
      `  - { id: ${protocol}, type: text, context: 200000, maxCompletionTokens: 32000, capabilities: [functionCalling, reasoning], price: ${JSON.stringify(PRICE)}, replicas: [{ engine: ${protocol} }] }`;
    const all = [CHAT, MESSAGES, RESPONSES];
    farebox = await startTestApp({
      yaml: `
engines:
${all.map(({ protocol }) => `  ${protocol}: { protocol: ${protocol}, url: "${engine.url}", addedPromptTokens: 10000 }`).join('\n')}
models:
${all.map(model).join('\n')}
${LIMITS}
`,
    });
  });
  after(async () => {
    try {
      await farebox.audit();
    } finally {
      await farebox.stop();
      await engine.kill();
    }
  });

  async function balanceNano(accountId: string): Promise<bigint> {
    return (await farebox.app.stores.ledger.balances(accountId)).usdNano;
  }

  for (const { path, protocol, body, turn, compare } of [CHAT, MESSAGES, RESPONSES]) {
    for (const stream of [false, true]) {
      const way = stream ? 'streams' : 'JSON';
      test(`reach a caller of ${path} unchanged as ${way}, at the price of their usage`, async () => {
        const cuts = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 4 });
        const { accountId, secret } = await farebox.account('100');
        const beforeNano = await balanceNano(accountId);
        const samples = fc.sample(fc.tuple(turn, cuts), { numRuns: TURNS, seed: 7 });
        let dueNano = 0;
        for (const [at, [made, places]] of samples.entries()) {
          const { sent, counts: counted } = made(stream);
          engine.script.push(sendsInPieces(sent, places, stream));
          const request = { model: protocol, stream, ...body };
          const received = await call(farebox, path, { secret, body: request });
          assert.equal(received.status, 200, `turn ${at}: ${received.text}`);
          compare(received.text, sent, stream);
          dueNano += nanoOf(counted);
        }
        assert.equal(samples.length, TURNS);
        assert.equal(beforeNano - (await balanceNano(accountId)), BigInt(dueNano));
      });
    }
  }
});
