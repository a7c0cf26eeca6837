import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type TestApp, startTestApp } from '../../test/app/test-app.ts';

describe('GET /models', () => {
  let farebox: TestApp;

  before(async () => {
    const price = 'price: { input: 1, output: 2 }, context: 4096';
    farebox = await startTestApp({
      yaml: `
engines: { one: { url: "http://127.0.0.1:9" } }
models:
  - { id: mine, type: text, ${price}, aliases: [gpt-4o], replicas: [{ engine: one }] }
  - { id: theirs, type: text, privacy: anonymized, ${price}, replicas: [{ engine: one }] }
  - { id: vectors, type: embedding, privacy: anonymized, embedding: { dimensions: 8 }, price: { input: 1 }, replicas: [{ engine: one }] }
`,
    });
  });
  after(() => farebox.stop());

  async function ids(type: string, secret?: string): Promise<string[]> {
    const headers: Record<string, string> =
      secret === undefined ? {} : { authorization: `Bearer ${secret}` };
    const answer = await fetch(`${farebox.url}/models?type=${type}`, { headers });
    assert.equal(answer.status, 200);
    const { data } = (await answer.json()) as { data: { id: string }[] }; // checked by the document
    return data.map(({ id }) => id);
  }

  test('lists everything without a key, with one, and with one that nobody knows', async () => {
    const all = ['mine', 'theirs', 'vectors'];
    assert.deepEqual(await ids('all'), all);
    assert.deepEqual(await ids('all', farebox.owner.secret), all);
    assert.deepEqual(await ids('all', 'SVC_INFERENCE_KEY_unknown'), all);
    assert.deepEqual(await ids('text'), ['mine', 'theirs']);
  });

  test('lists to a key of private models what it may use', async () => {
    assert.deepEqual(await ids('all', await farebox.key({ modelPrivacy: 'PRIVATE_ONLY' })), [
      'mine',
    ]);
    assert.deepEqual(await ids('all', await farebox.key({ modelPrivacy: 'PRIVATE_TEXT' })), [
      'mine',
      'vectors',
    ]);
  });

  test('lists to a key with models of its own these alone', async () => {
    const secret = await farebox.key({ models: ['theirs', 'vectors'] });
    assert.deepEqual(await ids('all', secret), ['theirs', 'vectors']);
    assert.deepEqual(await ids('text', secret), ['theirs']);
    const both = await farebox.key({ models: ['mine', 'theirs'], modelPrivacy: 'PRIVATE_ONLY' });
    assert.deepEqual(await ids('all', both), ['mine']);
    assert.deepEqual(await ids('all'), ['mine', 'theirs', 'vectors']);
  });
});
