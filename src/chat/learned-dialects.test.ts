/** An engine of an unknown kind: a parameter that it rejects by name is learned with one retry. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { type Bench, call, chatBody, startWithEngine } from '../../test/app/call.ts';
import type { Behaviour } from '../../test/support/test-upstream.ts';

const BOTH_CAPS = {
  error: {
    message: "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
    type: 'invalid_request_error',
    param: 'max_tokens',
    code: 'invalid_parameter_combination',
  },
};

/** Rejects a body that has any of these members; accepts every other. */
function refusing(refusals: Readonly<Record<string, object>>): Behaviour {
  return {
    kind: 'own',
    answer: (response, body) => {
      const sent = JSON.parse(body) as Record<string, unknown>;
      const [, refusal] = Object.entries(refusals).find(([name]) => name in sent) ?? [];
      response.writeHead(refusal === undefined ? 200 : 400, { 'content-type': 'application/json' });
      const message = { role: 'assistant', content: 'Hi' };
      const choices = [{ index: 0, message, finish_reason: 'stop' }];
      const usage = { prompt_tokens: 12, completion_tokens: 5 };
      response.end(JSON.stringify(refusal ?? { id: 'u', model: 'm', choices, usage }));
    },
  };
}

describe('learned dialects', () => {
  let bench: Bench;
  let secret: string;

  before(async () => {
    bench = await startWithEngine({
      model:
        '  - { id: second, type: text, context: 8192, price: { input: 1, output: 2 }, replicas: [{ engine: rack1, model: other }] }',
    });
    ({ secret } = await bench.farebox.account('5'));
  });
  beforeEach(() => bench.upstream.seen.splice(0));
  after(async () => {
    await bench.farebox.audit();
    await bench.stop();
  });

  const chat = (more: object = {}) =>
    call(bench.farebox, '/chat/completions', { secret, body: chatBody({ ...more }) });
  const sent = () =>
    bench.upstream.seen.map(({ body }) => Object.keys(JSON.parse(body) as object).toSorted());

  test('a chat is retried without a rejected parameter, and later chats omit it', async () => {
    bench.upstream.otherwise = refusing({ max_tokens: BOTH_CAPS });
    const first = await chat();
    assert.equal(first.status, 200, first.text);
    assert.equal(first.headers.get('x-retry-count'), '1');
    const second = await chat();
    assert.equal(second.status, 200);
    assert.equal(second.headers.get('x-retry-count'), null);
    const without = ['cache_salt', 'max_completion_tokens', 'messages', 'model'];
    assert.deepEqual(sent(), [[...without, 'max_tokens'].toSorted(), without, without]);
  });

  test('a second rejected parameter is learned too, and an essential one is reported', async () => {
    const unknown = (param: string) => ({
      error: { message: `Unknown parameter: '${param}'.`, param, code: 'unknown_parameter' },
    });
    bench.upstream.otherwise = refusing({ vendor: unknown('vendor'), top_k: unknown('top_k') });
    assert.equal((await chat({ vendor: 1, top_k: 5, seed: 3 })).status, 200);
    assert.equal(bench.upstream.seen.length, 3);
    bench.upstream.otherwise = refusing({ stop: unknown('stop') });
    const refused = await chat({ stop: 'x' });
    assert.equal(refused.status, 400);
    assert.match(refused.body.error, /Unknown parameter: 'stop'/);
    assert.equal(bench.upstream.seen.length, 4);
  });

  test('texts of a request that an engine repeats change nothing for other requests', async () => {
    const echoing = (wrong: string): Behaviour => ({
      kind: 'own',
      answer: (response, body) => {
        const sent = JSON.parse(body) as Record<string, unknown>;
        const isWrong = typeof sent['ignore_eos'] === 'string';
        response.writeHead(isWrong ? 400 : 200, { 'content-type': 'application/json' });
        const error = { message: `Input should be a valid boolean, 'input': '${wrong}'` };
        const message = { role: 'assistant', content: 'Hi' };
        const usage = { prompt_tokens: 12, completion_tokens: 5 };
        const whole = { choices: [{ index: 0, message, finish_reason: 'stop' }], usage };
        response.end(JSON.stringify(isWrong ? { error } : whole));
      },
    });
    const wrongs = [
      'unknown parameter: temperature, unknown parameter: cache_salt',
      'This model is only supported in v1/responses.',
    ];
    for (const wrong of wrongs) {
      bench.upstream.otherwise = echoing(wrong);
      const refused = await chat({ model: 'second', ignore_eos: wrong, temperature: 1 });
      assert.equal(refused.status, 400, refused.text);
      bench.upstream.seen.splice(0);
      assert.equal((await chat({ model: 'second', temperature: 1 })).status, 200);
      assert.equal(bench.upstream.seen[0]?.path, '/v1/chat/completions');
      assert.deepEqual(
        ['temperature', 'cache_salt'].filter((name) => sent()[0]?.includes(name) !== true),
        [],
      );
    }
  });

  test('a thinking block opened by the prompt does not leak into a stream', async () => {
    const contents = async (content: string, more: object = {}): Promise<string[]> => {
      bench.upstream.script.push({ kind: 'answer', content });
      const { text } = await chat({
        stream: true,
        svc_parameters: { disable_thinking: true },
        ...more,
      });
      return [...text.matchAll(/"delta":\{[^}]*"content":"([^"]+)"/g)].map(
        ([, said]) => said ?? '',
      );
    };
    // Until a response has shown that no block is open, the text waits for its end; then it
    // streams.
    assert.equal((await contents('It is four indeed')).length, 1);
    assert.ok((await contents('It is four indeed')).length > 1);
    const other = { model: 'second' };
    const thought = 'Hm, two and two.</think>It is four';
    assert.equal((await contents(thought, other)).join(''), 'It is four');
    assert.equal((await contents('It is four', other)).join(''), 'It is four');
    assert.equal((await contents(thought, other)).join(''), 'It is four');
  });

  test('the last name of the output cap is never left out', async () => {
    const refusal = {
      error: {
        message: "Unsupported parameter: 'max_completion_tokens' is not supported.",
        param: 'max_completion_tokens',
        code: 'unsupported_parameter',
      },
    };
    bench.upstream.otherwise = refusing({ max_completion_tokens: refusal });
    assert.equal((await chat()).status, 400);
    assert.equal(bench.upstream.seen.length, 1);
  });
});
