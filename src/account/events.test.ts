/** Live events over HTTP: their content, their receivers, and the end of a stream. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Bench, call, chatBody, startWithEngine } from '../../test/app/call.ts';
import { usdToNano } from '../core/money.ts';
import { TestClock } from '../../test/support/test-clock.ts';

interface Heard {
  readonly event: string;
  readonly data: ReturnType<typeof JSON.parse>;
}

/** An open stream that is read as it comes. */
class Listener {
  readonly heard: Heard[] = [];
  readonly #abort = new AbortController();
  isOver = false;

  static async open(bench: Bench, secret: string, address = '192.0.2.1'): Promise<Listener> {
    const listener = new Listener();
    const response = await fetch(`${bench.farebox.url}/events`, {
      headers: { authorization: `Bearer ${secret}`, 'x-forwarded-for': address },
      signal: listener.#abort.signal,
    });
    assert.equal(response.status, 200);
    assert.match(response.headers.get('content-type') ?? '', /^text\/event-stream/);
    void listener.#read(response).catch(() => undefined); // cut by the test
    return listener;
  }

  async #read(response: Response): Promise<void> {
    let text = '';
    for await (const piece of response.body ?? []) {
      text += Buffer.from(piece as Uint8Array).toString();
      const blocks = text.split('\n\n');
      text = blocks.pop() ?? '';
      for (const block of blocks) {
        const [, event = '', data = ''] = /^event: (.*)\ndata: (.*)$/.exec(block) ?? [];
        if (event !== '') this.heard.push({ event, data: JSON.parse(data) });
      }
    }
    this.isOver = true;
  }

  /** Waits for the notification, while the time advances. */
  async wait(what: (heard: Heard) => boolean, clock?: TestClock): Promise<Heard> {
    const untilMs = performance.now() + 60_000;
    for (;;) {
      const found = this.heard.find(what);
      if (found !== undefined) return found;
      if (performance.now() > untilMs) {
        throw new Error(`Not told; heard ${JSON.stringify(this.heard)}`);
      }
      clock?.advance(500);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  close(): void {
    this.#abort.abort();
  }
}

describe('live events', () => {
  const clock = new TestClock();
  let bench: Bench;
  let mine: { accountId: string; secret: string };
  let admin: string;
  let stranger: { accountId: string; secret: string };

  before(async () => {
    bench = await startWithEngine({
      clock,
      yaml: 'limits: { keyConcurrency: 4 }\nhttp: { trustProxy: true }',
    });
    mine = await bench.farebox.account('5');
    admin = await bench.farebox.key({ accountId: mine.accountId, kind: 'ADMIN' });
    stranger = await bench.farebox.account('5', { kind: 'ADMIN' });
  });
  after(() => bench.stop());

  const chat = async (secret: string): Promise<string> => {
    const answer = await call(bench.farebox, '/chat/completions', { secret, body: chatBody() });
    assert.equal(answer.status, 200, answer.text);
    return answer.headers.get('x-request-id') ?? '';
  };

  test('a request moves balance, sums and list of its own account, and of no other', async () => {
    await chat(mine.secret);
    const listener = await Listener.open(bench, admin);
    const other = await Listener.open(bench, stranger.secret);
    const own = await Listener.open(bench, admin);
    const first = await listener.wait(({ event }) => event === 'usage', clock);
    assert.equal(first.data.requests, 1);
    await listener.wait(({ event }) => event === 'balance', clock);
    await other.wait(({ event }) => event === 'usage', clock);
    const requestId = await chat(mine.secret);
    const request = await listener.wait(({ event }) => event === 'request', clock);
    assert.equal(request.data.requestId, requestId);
    assert.equal(request.data.cost.usd, 0.000022);
    await listener.wait(({ event, data }) => event === 'usage' && data.requests === 2, clock);
    await listener.wait(
      ({ event, data }) => event === 'balance' && data.balances.usd < 4.99996,
      clock,
    );
    await own.wait(({ event }) => event === 'request', clock);
    const { store, ledger } = bench.farebox.app.stores;
    await store.transaction((tx) =>
      ledger.creditIn(tx, {
        accountId: mine.accountId,
        amountNano: usdToNano('3'),
        from: 'house:operator-credit',
        kind: 'CREDIT',
        id: 'more',
      }),
    );
    await listener.wait(({ event, data }) => event === 'balance' && data.balances.usd > 7, clock);
    assert.deepEqual(
      listener.heard.filter(({ event }) => event === 'request').length,
      1,
      'a request is told once, and not what was there before',
    );
    assert.deepEqual(
      other.heard.map(({ event }) => event),
      ['balance', 'usage'],
    );
    for (const one of [listener, other, own]) one.close();
  });

  test('a key that is not an ADMIN key receives only its own events', async () => {
    const lesser = await Listener.open(
      bench,
      await bench.farebox.key({ accountId: mine.accountId }),
    );
    const all = await Listener.open(bench, admin);
    await lesser.wait(({ event }) => event === 'usage', clock);
    await all.wait(({ event }) => event === 'usage', clock);
    await chat(mine.secret);
    await all.wait(({ event }) => event === 'request', clock);
    await lesser.wait(
      ({ event, data }) => event === 'balance' && data.balances.usd !== 7.999956,
      clock,
    );
    assert.ok(lesser.heard.every(({ event }) => event !== 'request'));
    for (const one of [lesser, all]) one.close();
  });

  test('a stream ends with the key that opened it', async () => {
    const key = await bench.farebox.key({ accountId: mine.accountId });
    const listener = await Listener.open(bench, key);
    await listener.wait(({ event }) => event === 'usage', clock);
    const { identity } = bench.farebox.app.stores;
    const { keyId } = await identity.keys.callerOf(key);
    assert.ok(await identity.revokeKey(mine.accountId, keyId));
    const end = await listener.wait(({ event }) => event === 'end', clock);
    assert.deepEqual(end.data, { reason: 'session' });
  });

  test('a stream of a child key ends with the expiry of its parent', async () => {
    const { accountId, secret } = await bench.farebox.account('5');
    const expiresAt = new Date(clock.nowMs() + 60_000).toISOString();
    const body = { description: 'helper', expiresAt };
    const made = await call(bench.farebox, '/key/children', { secret, body });
    const listener = await Listener.open(bench, made.body.data.apiKey);
    await listener.wait(({ event }) => event === 'usage', clock);
    const { identity } = bench.farebox.app.stores;
    const child = await identity.findKey(accountId, made.body.data.id);
    assert.ok(child?.parentId !== undefined);
    const parent = await identity.findKey(accountId, child.parentId);
    assert.ok(parent !== undefined);
    await identity.updateKey({ ...parent, expiresMs: clock.nowMs() + 1_000 });
    await identity.updateKey({ ...child, expiresMs: undefined });
    const end = await listener.wait(({ event }) => event === 'end', clock);
    assert.equal(end.data.reason, 'session');
  });

  test('streams of an account are bounded, and take no place of its requests', async () => {
    const open: Listener[] = [];
    for (let at = 0; at < 10; at += 1) open.push(await Listener.open(bench, stranger.secret));
    const refused = await call(bench.farebox, '/events', { secret: stranger.secret });
    assert.deepEqual([refused.status, refused.body.code], [429, 'RATE_LIMIT_EXCEEDED']);
    await chat(stranger.secret);
    for (const one of open) one.close();
    const untilMs = performance.now() + 60_000;
    let status = 429;
    while (status === 429 && performance.now() < untilMs) {
      const controller = new AbortController();
      const answer = await fetch(`${bench.farebox.url}/events`, {
        headers: { authorization: `Bearer ${stranger.secret}` },
        signal: controller.signal,
      });
      ({ status } = answer);
      controller.abort();
    }
    assert.equal(status, 200, 'a closed stream makes room');
  });

  test('accounts of one address leave streams to others, whichever of its network it has', async () => {
    const open: Listener[] = [];
    for (let account = 0; account < 10; account += 1) {
      const { secret } = await bench.farebox.account('1');
      const address = `2a00:1450:4001:82a::${account + 1}`;
      const streams = Array.from({ length: 10 }, () => Listener.open(bench, secret, address));
      open.push(...(await Promise.all(streams)));
    }
    const { secret } = await bench.farebox.account('1');
    const refused = await call(bench.farebox, '/events', {
      secret,
      headers: { 'x-forwarded-for': '2a00:1450:4001:82a:ffff::1' },
    });
    assert.deepEqual([refused.status, refused.body.code], [429, 'RATE_LIMIT_EXCEEDED']);
    assert.match(refused.text, /address/);
    open.push(await Listener.open(bench, secret, '2a00:1450:4001:82b::1'));
    for (const one of open) one.close();
  });

  test('a server that closes ends its streams and does not wait for them', async () => {
    const second = await startWithEngine();
    const { secret } = await second.farebox.account('1');
    const listener = await Listener.open(second, secret);
    await listener.wait(({ event }) => event === 'balance');
    const startedMs = performance.now();
    await second.stop();
    // A stream that is waited for lasts until the end of the drain.
    assert.ok(performance.now() - startedMs < 25_000);
    const end = await listener.wait(({ event }) => event === 'end');
    assert.deepEqual(end.data, { reason: 'shutdown' });
  });

  test('HEAD returns the headers of a stream at once, and opens none', async () => {
    const { secret } = await bench.farebox.account('1');
    for (let turn = 0; turn < 11; turn += 1) {
      const head = await call(bench.farebox, '/events', {
        secret,
        method: 'HEAD',
        signal: AbortSignal.timeout(10_000),
      });
      assert.equal(head.status, 200);
      assert.match(head.headers.get('content-type') ?? '', /^text\/event-stream/);
    }
  });

  test('a stream needs somebody', async () => {
    assert.equal((await call(bench.farebox, '/events')).status, 402);
  });
});
