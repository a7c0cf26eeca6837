import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { call, startWithEngine } from '../../test/app/call.ts';
import { until } from '../../test/support/until.ts';

const LARGER =
  '  - { id: larger, type: video, replicas: [{ engine: rack1 }], video: { task: upscale, pricing: { kind: upscale, tiers: [{ maxHeight: 2160, perSecond: 0.02 }] } } }';

test('media in the request is decoded only for a caller with credit', async (t) => {
  const bench = await startWithEngine({ model: LARGER });
  t.after(() => bench.stop());
  const { id: accountId } = await bench.farebox.app.stores.identity.createAccount('poor', 'paid');
  const secret = await bench.farebox.key({ accountId });
  const body = { model: 'larger', video_url: 'data:video/mp4;base64,AAAA' };
  const { status, text } = await call(bench.farebox, '/video/queue', { secret, body });
  assert.equal(status, 402, text);
});

test('a client of x402 version 1 gets the price of a video with an image in the request', async (t) => {
  const bench = await startWithEngine({
    yaml: `payments: { base: { network: 'eip155:84532', rpcUrl: 'http://127.0.0.1:9', payTo: '0x1111111111111111111111111111111111111111' } }`,
    model:
      '  - { id: mover, type: video, replicas: [{ engine: rack1 }], video: { task: image-to-video, durations: [1 gen], pricing: { kind: generation, perGeneration: 0.35 } } }',
  });
  t.after(() => bench.stop());
  const queued = { model: 'mover', prompt: 'p', duration: '1 gen' };
  for (const image_url of ['data:image/png;base64,AAAA', 'http://127.0.0.1:9/image.png']) {
    const body = { ...queued, image_url };
    const priced = await call(bench.farebox, '/video/queue?x402Version=1', { body });
    assert.equal(priced.status, 402, priced.text);
    assert.equal(priced.body.accepts[0].maxAmountRequired, '350000');
  }
});

test('files that never arrive leave a quote for another caller', async (t) => {
  let reads = 0;
  const site = createServer(() => (reads += 1));
  site.listen(0, '127.0.0.1');
  await once(site, 'listening');
  const bench = await startWithEngine({
    yaml: 'fetch: { allow: ["127.0.0.0/8"] }',
    model: LARGER,
  });
  const leaving = new AbortController();
  t.after(async () => {
    leaving.abort();
    site.closeAllConnections();
    site.close();
    await bench.stop();
  });
  const { port } = site.address() as AddressInfo; // it listens on a port
  const quote = (secret: string) => {
    const body = { model: 'larger', duration: 'auto', video_url: `http://127.0.0.1:${port}/` };
    const { signal } = leaving;
    return call(bench.farebox, '/video/quote', { secret, body, signal }).catch(() => undefined);
  };
  const [one, other] = [await bench.farebox.account('5'), await bench.farebox.account('5')];
  const answers = Array.from({ length: 4 }, () => quote(one.secret));
  await until(() => reads >= 3, 'the reads of the first caller');
  const first = await Promise.race(answers);
  assert.equal(first?.status, 429);
  void quote(other.secret);
  await until(() => reads === 4, 'the read of the other caller');
});
